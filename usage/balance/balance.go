package balance

import (
	"fmt"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// Balance judges all that was added. progress, which may be nil, is told how much of how much is judged. An error means that it
// could not be read back, or a repair not be written.
func (a *Audit) Balance(progress func(done, total int64)) (*Report, error) {
	a.trimmed()
	a.judgeChains()
	a.orderEngines()
	var done int64
	err := a.buckets.each(func(list []*usagev1.Record) error {
		requests, others := split(list)
		for _, g := range a.groups(requests) {
			a.judge(g)
			for _, r := range g.served {
				a.countEngine(r)
			}
		}
		a.judgeOthers(others)
		if done++; progress != nil {
			progress(done, bucketCount)
		}
		return a.err
	})
	if err != nil {
		return nil, err
	}
	a.judgeUnserved()
	r := &Report{At: a.opts.Now.UTC(), Records: a.ledger.records, From: bound(a.opts.From), To: bound(a.opts.To), Sources: a.judgeSources(), Engines: a.judgeEngines()}
	r.Rows = a.ledger.sorted()
	for _, row := range r.Rows {
		r.Total.add(row)
	}
	r.Counts, r.bySource = a.ledger.counts, a.ledger.bySource
	r.Problems, r.Notes = append([]Problem{}, a.ledger.problems...), append([]Problem{}, a.ledger.notes...) // never null
	sortProblems(r.Problems)
	sortProblems(r.Notes)
	r.Balanced = r.Failing() == 0
	return r, nil
}

func bound(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// trimmed moves the beginning to where spools are whole whose oldest segments were shipped and removed.
func (a *Audit) trimmed() {
	if a.traits.Whole || !a.traits.Complete {
		return
	}
	for _, s := range a.sources {
		counts := s.worker || strings.HasPrefix(s.name, repairPrefix) // in any admission; what reconciliation found does not
		if s.door || counts && s.order()[0].first > 1 {
			a.opts.From = later(a.opts.From, s.first)
		}
	}
}

// judgeSources wants that no number is missing up to each watermark.
func (a *Audit) judgeSources() []SourceReport {
	list := []SourceReport{}
	for _, name := range sortedNames(a.sources) {
		s := a.sources[name]
		for _, e := range s.order() {
			from, to := a.judged(s, e)
			r := SourceReport{
				Source: name, Epoch: e.number, Records: e.records, First: e.first, Last: e.last, Judged: to,
				Told: e.lastTime.UTC(), WrittenOff: a.writtenOff(name, e.number),
			}
			e.seen.missing(from, to, func(g span) {
				r.Missing += g.to - g.from + 1
				a.ledger.problem(gap(name, e.number, g, r.WrittenOff))
			})
			list = append(list, r)
		}
	}
	return list
}

// split parts what is of admissions from what is not.
func split(list []*usagev1.Record) (requests, others []*usagev1.Record) {
	for _, r := range list {
		if ofRequest(r) {
			requests = append(requests, r)
		} else {
			others = append(others, r)
		}
	}
	return requests, others
}

// judgeChains tells what the chains of digests show as a whole, and who signed them.
func (a *Audit) judgeChains() {
	for _, p := range a.chains.Finish() {
		a.judgeSigner(p)
	}
}

// judgeSigner wants, where keys are pinned, that each epoch is signed, and by a key of its source alone.
func (a *Audit) judgeSigner(p usage.Proof) {
	if a.opts.Trusts == nil || a.writtenOff(p.Source, p.Epoch) {
		return
	}
	tell := func(format string, args ...any) {
		a.ledger.problem(Problem{Kind: Untrusted, Source: p.Source, Epoch: p.Epoch, Sequence: p.Last, What: fmt.Sprintf(format, args...)})
	}
	for _, f := range p.Fingerprints {
		if !a.opts.Trusts(p.Source, f) {
			tell("its checkpoints are signed by %s, which is no key of it", f)
		}
	}
	s := a.sources[p.Source]
	switch e := s.epochs[p.Epoch]; {
	case p.Unchained > 0:
		tell("%d of its records are in no chain that could be signed", p.Unchained)
	case len(p.Fingerprints) == 0 && (s.newest > p.Epoch || e.lastTime.Before(a.opts.Now.Add(-a.opts.Settle))):
		tell("none of its checkpoints is there")
	}
}
