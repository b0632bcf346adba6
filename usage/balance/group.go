package balance

import (
	"maps"
	"slices"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// group is all that is known of one admission. Of each id the record that counts is there once.
type group struct {
	admission       string
	admitted, usage *usagev1.Record
	served          []*usagev1.Record
	told            []Problem // doubles and conflicts
}

// groups sorts a bucket by admission.
func (a *Audit) groups(list []*usagev1.Record) []*group {
	byID := map[string]*usagev1.Record{}
	all := map[string]*group{}
	for _, r := range list {
		a.confront(r)
		g := all[r.Admission]
		if g == nil {
			g = &group{admission: r.Admission}
			all[r.Admission] = g
		}
		if before := byID[r.Id]; before != nil && !g.replace(before, r) {
			continue
		}
		byID[r.Id] = r
	}
	for _, r := range byID {
		g := all[r.Admission]
		switch r.Kind {
		case usage.KindAdmitted:
			g.admitted = r
		case usage.KindUsage:
			g.usage = r
		case usage.KindServed:
			g.served = append(g.served, r)
		}
	}
	order := slices.Sorted(maps.Keys(all))
	sorted := make([]*group, len(order))
	for i, id := range order {
		sorted[i] = all[id]
		slices.SortFunc(sorted[i].served, func(a, b *usagev1.Record) int { return int(a.Attempt) - int(b.Attempt) })
	}
	return sorted
}

// replace tells whether r takes the place of the record of the same id before it, and notes what that means.
func (g *group) replace(before, r *usagev1.Record) bool {
	switch {
	case content(before) == content(r):
		g.told = append(g.told, about(Doubled, r, "%s is there again", r.Id))
		return false
	case usage.Wins(r, before):
		g.told = append(g.told, about(Superseded, before, "%s of %s wins over it", r.Id, r.Source))
		return true
	case usage.Wins(before, r):
		g.told = append(g.told, about(Superseded, r, "%s of %s wins over it", r.Id, before.Source))
		return false
	}
	g.told = append(g.told, about(Conflict, r, "%s is there with another content, %s/%d/%d", r.Id, before.Source, before.Epoch, before.Sequence))
	return false
}

// confront compares a record with another one of the same number.
func (a *Audit) confront(r *usagev1.Record) {
	first, is := a.suspects[markOf(r)]
	if !is {
		return
	}
	if first == nil {
		a.suspects[markOf(r)] = &suspect{r.Id}
		return
	}
	if first.id != r.Id {
		a.ledger.problem(about(Clash, r, "%s has the same number", first.id))
	}
}

// hour of the admission: as the door says, or else when a worker first knew of it.
func (g *group) hour() (at time.Time) {
	switch {
	case g.admitted != nil:
		at = g.admitted.AdmittedAt.AsTime()
	case g.usage != nil:
		at = g.usage.AdmittedAt.AsTime()
	default:
		for _, r := range g.served {
			t := eventTime(r)
			if r.FirstByteAt != nil {
				t = r.FirstByteAt.AsTime()
			}
			if at.IsZero() || t.Before(at) {
				at = t
			}
		}
	}
	return at
}

// best is the attempt that the client's answer came from, as far as records tell: nil if there is none. A leg that prefilled
// for another worker is none.
func (g *group) best() (best *usagev1.Record) {
	for _, r := range g.served {
		if usage.Answers(r) && (best == nil || better(r, best)) {
			best = r
		}
	}
	return best
}

func better(r, than *usagev1.Record) bool {
	if a, b := r.Outcome == usage.OutcomeComplete, than.Outcome == usage.OutcomeComplete; a != b {
		return a
	}
	if a, b := r.GetCompletionTokens(), than.GetCompletionTokens(); a != b {
		return a > b
	}
	return r.Attempt > than.Attempt
}
