package balance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// source is what is known of one journal.
type source struct {
	name         string
	epochs       map[uint64]*epoch
	door, worker bool
	newest       uint64    // epoch that proves that the earlier ones are over
	last         time.Time // up to when it has told
	first        time.Time // of its first record that is there
}

// epoch is what is known of one run of a source.
type epoch struct {
	number      uint64
	seen        numbers
	first, last uint64 // the least and the greatest number; last only of what proves something
	begin       uint64 // the least number that was journaled in the range
	end         uint64 // the least number that was journaled behind it; 0: none
	lastTime    time.Time
	firstTime   time.Time // of the record with the number first
	records     uint64
	sealed      bool // its process said at its end that nothing more comes
}

// mark is a place in a source's journal.
type mark struct {
	source          string
	epoch, sequence uint64
}

func markOf(r *usagev1.Record) mark { return mark{r.Source, r.Epoch, r.Sequence} }

// see notes a record's place. It returns false if the number was there already.
func (s *source) see(r *usagev1.Record, fresh bool, from, to time.Time) bool {
	e := s.epochs[r.Epoch]
	if e == nil {
		e = &epoch{number: r.Epoch, seen: numbers{}, first: r.Sequence}
		s.epochs[r.Epoch] = e
	}
	switch r.Kind {
	case usage.KindAdmitted, usage.KindUsage:
		s.door = s.door || !strings.HasPrefix(s.name, repairPrefix)
	case usage.KindServed:
		s.worker = true
	}
	at := eventTime(r)
	e.note(r.Sequence, at, from, to)
	if s.first.IsZero() || at.Before(s.first) {
		s.first = at
	}
	if !fresh {
		e.last = max(e.last, r.Sequence)
		s.newest = max(s.newest, r.Epoch)
		e.lastTime, s.last = later(e.lastTime, at), later(s.last, at)
		s.checkpoint(r)
	}
	if !e.seen.add(r.Sequence) {
		return false
	}
	e.records++
	return true
}

// checkpoint takes from one how far its epoch went.
func (s *source) checkpoint(r *usagev1.Record) {
	c := r.Checkpoint
	if c == nil {
		return
	}
	if of := s.epochs[c.Epoch]; of != nil {
		of.last = max(of.last, c.Sequence)
		of.sealed = of.sealed || c.Closing && c.Epoch == r.Epoch
	}
}

func (e *epoch) note(n uint64, at, from, to time.Time) {
	if n <= e.first {
		e.first, e.firstTime = n, at
	}
	if !at.Before(from) && (e.begin == 0 || n < e.begin) {
		e.begin = n
	}
	if !to.IsZero() && !at.Before(to) && (e.end == 0 || n < e.end) {
		e.end = n
	}
}

// judged is the run of numbers that must be there.
func (a *Audit) judged(s *source, e *epoch) (from, to uint64) {
	from, to = e.begin, e.last
	if a.traits.Whole && a.opts.From.IsZero() {
		from = 1
	}
	quiet := s.newest > e.number || e.sealed || e.lastTime.Before(a.opts.Now.Add(-a.opts.Settle))
	if !quiet && a.traits.Slack > 0 {
		to -= min(to, a.traits.Slack)
	}
	if e.end > 0 {
		to = min(to, e.end)
	}
	if e.begin == 0 { // nothing of the range
		return 1, 0
	}
	return from, to
}

// settled tells whether all that r's source had journaled before r is there.
func (a *Audit) settled(r *usagev1.Record) bool {
	s := a.sources[r.Source]
	e := s.epochs[r.Epoch]
	_, to := a.judged(s, e)
	return r.Sequence <= to
}

// told is the time up to which a source has told all it knows. One that is silent has nothing to tell.
func (a *Audit) told(s *source) time.Time {
	if a.traits.Complete {
		return a.opts.Now
	}
	return later(s.last, a.opts.Now.Add(-a.opts.Settle))
}

// allTold tells whether every one of the sources has told what was before t, and a moment more for the disk.
func (a *Audit) allTold(t time.Time, of func(*source) bool) bool {
	t = t.Add(min(a.opts.Settle, time.Minute))
	for _, s := range a.sources {
		if of(s) && !a.writtenOff(s.name, s.newest) && !a.told(s).After(t) {
			return false
		}
	}
	return true
}

func isDoor(s *source) bool   { return s.door }
func isWorker(s *source) bool { return s.worker }

// over tells whether the flight of an admitted request must have ended, and its usage be there.
func (a *Audit) over(admitted *usagev1.Record) bool {
	s := a.sources[admitted.Source]
	return s.newest > admitted.Epoch || s.epochs[admitted.Epoch].sealed || a.told(s).Add(-a.opts.Settle).After(admitted.AdmittedAt.AsTime())
}

func (a *Audit) writtenOff(source string, epoch uint64) bool {
	at, is := a.writeOffs[source]
	return is && epoch <= uint64(max(at.Unix(), 0))
}

// brokeOff tells whether the source ended without a word and was started again after t, and had told nothing in between: what it had not
// yet written at t is gone.
func (s *source) brokeOff(t time.Time) bool {
	list := s.order()
	for i, e := range list[:max(len(list)-1, 0)] {
		next := time.Unix(int64(min(list[i+1].number, 1<<40)), 0)
		if !e.sealed && t.After(e.lastTime.Add(-time.Second)) && t.Before(next.Add(time.Second)) {
			return true
		}
	}
	return false
}

// order are the epochs in order.
func (s *source) order() []*epoch {
	var list []*epoch
	for _, e := range s.epochs {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *epoch) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return list
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func sortedNames(sources map[string]*source) []string { return slices.Sorted(maps.Keys(sources)) }

// gap makes a problem of missing numbers.
func gap(source string, epoch uint64, g span, writtenOff bool) Problem {
	p := Problem{Kind: Gap, Source: source, Epoch: epoch, Sequence: g.from, What: fmt.Sprintf("sequence %d is missing", g.from)}
	if g.to > g.from {
		p.What = fmt.Sprintf("sequences %d to %d are missing", g.from, g.to)
	}
	if writtenOff {
		p.Kind = WrittenOff
	}
	return p
}
