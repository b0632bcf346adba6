package balance

import (
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Balance judges all that was added. An error means that it could not be read back, or a repair not be written.
func (a *Audit) Balance() (*Report, error) {
	a.trimmed()
	err := a.buckets.each(func(list []*usagev1.Record) error {
		for _, g := range a.groups(list) {
			a.judge(g)
		}
		return a.err
	})
	if err != nil {
		return nil, err
	}
	a.judgeUnserved()
	r := &Report{At: a.opts.Now.UTC(), Records: a.ledger.records, From: bound(a.opts.From), To: bound(a.opts.To), Sources: a.judgeSources()}
	r.Rows = a.ledger.sorted()
	for _, row := range r.Rows {
		r.Total.add(row)
	}
	r.Counts = a.ledger.counts
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
		if list := s.order(); list[0].first > 1 || s.door {
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
