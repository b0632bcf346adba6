package balance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// judge says what of one admission does not fit.
func (a *Audit) judge(g *group) {
	at := g.hour()
	if at.Before(a.opts.From) || a.after(at) {
		return
	}
	hour := at.UTC().Truncate(time.Hour)
	for _, r := range g.records() {
		a.ledger.record(hour, r)
	}
	for _, p := range g.told {
		a.ledger.tell(hour, p)
	}
	a.presence(hour, g)
	a.agreement(hour, g)
}

func (g *group) records() (list []*usagev1.Record) {
	if g.admitted != nil {
		list = append(list, g.admitted)
	}
	if g.usage != nil {
		list = append(list, g.usage)
	}
	return append(list, g.served...)
}

// presence wants that each of the three records is there that must be.
func (a *Audit) presence(hour time.Time, g *group) {
	switch {
	case g.usage != nil:
		if g.admitted == nil {
			a.unadmitted(hour, g)
		}
		a.service(hour, g)
	case g.admitted != nil:
		a.unused(hour, g)
	default:
		a.unknown(hour, g)
	}
}

func (a *Audit) open(hour time.Time, r *usagev1.Record) {
	a.ledger.row(hour, r.Source, r.Team).Open++
}

// unadmitted: there is a usage, and no yes before it.
func (a *Audit) unadmitted(hour time.Time, g *group) {
	if !a.settled(g.usage) {
		a.open(hour, g.usage)
		return
	}
	p := about(MissingAdmitted, g.usage, "used, and never admitted")
	a.mend(hour, p, a.writtenOff(g.usage.Source, g.usage.Epoch), func() *usagev1.Record { return restoreAdmitted(g.usage) })
}

// unused: admitted, and no usage.
func (a *Audit) unused(hour time.Time, g *group) {
	r, best := g.admitted, g.best()
	if !a.over(r) {
		a.open(hour, r)
		return
	}
	lost := a.writtenOff(r.Source, r.Epoch)
	switch {
	case best != nil:
		p := about(MissingUsage, r, "admitted, and no usage; %s served %s tokens, %s", best.Source, count(best.CompletionTokens), best.Outcome)
		a.mend(hour, p, lost, func() *usagev1.Record { return restoreUsage(r, best) })
	case a.allTold(r.AdmittedAt.AsTime(), isWorker):
		a.mend(hour, about(MissingUsage, r, "admitted, and no usage; no worker knows of it"), lost, func() *usagev1.Record { return closeUsage(r) })
	default:
		a.mend(hour, about(MissingUsage, r, "admitted, and no usage; not all workers have told yet"), lost, nil)
	}
}

// unknown: served, and no door knows of it.
func (a *Audit) unknown(hour time.Time, g *group) {
	best, answered := g.best(), true
	if best == nil {
		best, answered = g.served[0], false
	}
	if !a.allTold(eventTime(best), isDoor) {
		a.open(hour, best)
		return
	}
	p := about(MissingAdmitted, best, "served %s tokens, %s; no door has admitted it", count(best.CompletionTokens), best.Outcome)
	lost := false
	for name, s := range a.sources {
		lost = lost || s.door && a.writtenOff(name, s.newest)
	}
	admitted := unknownAdmitted(best, g.hour())
	if a.mend(hour, p, lost, func() *usagev1.Record { return admitted }) && answered {
		p.Kind = MissingUsage
		a.mend(hour, p, lost, func() *usagev1.Record { return restoreUsage(admitted, best) })
	}
}

// service compares what the door says of the service with whether a worker told of one.
func (a *Audit) service(hour time.Time, g *group) {
	u, best := g.usage, g.best()
	if slices.Contains(u.Anomalies, usage.Repaired) {
		a.ledger.tell(hour, about(RepairedBefore, u, "%s of %s is a repair", u.Id, u.Source))
	}
	switch {
	case best == nil:
		if u.Outcome == usage.OutcomeComplete {
			a.unserved = append(a.unserved, unserved{hour, u.Worker, u.EndedAt.AsTime(), about(MissingServed, u, "complete, and no worker told of it")})
		}
		return
	case slices.Contains(u.Anomalies, unwitnessed):
		p := about(Uncounted, u, "its repair knew of no worker, and now %s tells of %s tokens", best.Source, count(best.CompletionTokens))
		a.mend(hour, p, false, func() *usagev1.Record { return restoreUsage(cmp.Or(g.admitted, u), best) })
	case u.Outcome == usage.OutcomeNotServed && best.Outcome == usage.OutcomeComplete:
		a.ledger.tell(hour, about(Contradiction, u, "not_served, and %s says complete", best.Source))
	case usage.Uncounted(u) && best.CountedFrom != usage.CountedNone:
		p := about(Uncounted, u, "the door counted nothing, %s counted %s tokens", best.Source, count(best.CompletionTokens))
		a.mend(hour, p, false, func() *usagev1.Record { return recount(u, best) })
	}
	if u.Worker != "" && best.Source != "" {
		if a.byAddress[u.Worker] == nil {
			a.byAddress[u.Worker] = map[string]bool{}
		}
		a.byAddress[u.Worker][best.Source] = true
	}
}

// unserved waits until it is known which worker answered where.
type unserved struct {
	hour    time.Time
	address string
	ended   time.Time
	problem Problem
}

// judgeUnserved looks at what was complete without a word of its worker.
func (a *Audit) judgeUnserved() {
	for _, u := range a.unserved {
		known := a.byAddress[u.address]
		may := func(name string) bool { return len(known) == 0 || known[name] }
		candidate := func(s *source) bool { return s.worker && may(s.name) }
		if kind, why := a.excuse(u, may, candidate); kind != "" {
			u.problem.Kind, u.problem.What = kind, u.problem.What+"; "+why
		} else if !a.allTold(u.ended, candidate) {
			a.ledger.row(u.hour, u.problem.Source, u.problem.Team).Open++
			continue
		}
		a.ledger.tell(u.hour, u.problem)
	}
}

// excuse tells why the word of the worker is not to be had; empty: it should be there.
func (a *Audit) excuse(u unserved, may func(string) bool, candidate func(*source) bool) (Kind, string) {
	for _, name := range slices.Sorted(maps.Keys(a.writeOffs)) {
		if s := a.sources[name]; may(name) && (s == nil || s.worker) && !u.ended.After(a.writeOffs[name]) {
			return WrittenOff, name + " was written off"
		}
	}
	for _, name := range sortedNames(a.sources) {
		if s := a.sources[name]; candidate(s) && s.brokeOff(u.ended) {
			return LostServed, name + " broke off about then"
		}
	}
	return "", ""
}

// mend repairs what p tells of, where that is asked for and possible, and tells. It returns whether it did repair.
func (a *Audit) mend(hour time.Time, p Problem, lost bool, record func() *usagev1.Record) bool {
	if a.opts.Repair != nil && record != nil && a.err == nil {
		if a.err = a.opts.Repair(record()); a.err == nil {
			p.What = string(p.Kind) + ", repaired: " + p.What
			p.Kind = RepairedNow
			a.ledger.tell(hour, p)
			return true
		}
	}
	if lost {
		p.Kind = WrittenOff
	}
	a.ledger.tell(hour, p)
	return false
}
