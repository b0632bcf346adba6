package balance

import (
	"cmp"
	"slices"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// engineRun names one run of an engine, by the worker before it.
type engineRun struct{ worker, epoch string }

// reading is what an engine's counters said at one place of its worker's journal: they hold what is journaled before it, and
// nothing of what is behind it.
type reading struct {
	at                 mark
	time               time.Time
	moment             string
	prompt, completion *int64 // nil: the engine does not say
}

// engineLog is what is known of one run.
type engineLog struct {
	readings []reading
	steps    []engineSum // of what stands before the reading of that place; the last one: behind them all
}

// engines hold the engines' own counters against what their workers journaled.
type engines struct {
	bound int64 // Options.CutBound
	runs  map[engineRun]*engineLog
}

func (e *engines) log(worker, epoch string) *engineLog {
	key := engineRun{worker, epoch}
	l := e.runs[key]
	if l == nil {
		l = &engineLog{}
		e.runs[key] = l
	}
	return l
}

// read takes a reading. All come before the first call of order.
func (e *engines) read(r *usagev1.Record) {
	l := e.log(r.Source, r.EngineEpoch)
	l.readings = append(l.readings, reading{markOf(r), eventTime(r), r.Engine.Moment, r.Engine.PromptTokens, r.Engine.CompletionTokens})
}

// order puts the readings in order, and leaves out those that are not needed: the first one and the last one of each hour are.
// use tells whether all that was journaled before a reading is there.
func (e *engines) order(use func(reading) bool) {
	for _, l := range e.runs {
		slices.SortFunc(l.readings, func(a, b reading) int { return a.at.compare(b.at) })
		var kept []reading
		for _, r := range l.readings {
			if !use(r) {
				continue
			}
			exact := r.moment == usage.MomentIdle || r.moment == usage.MomentLast
			if n := len(kept); n > 1 && exact && kept[n-1].moment == usage.MomentIdle && sameHour(kept[n-1].time, r.time) {
				kept = kept[:n-1]
			}
			kept = append(kept, r)
		}
		l.readings, l.steps = kept, make([]engineSum, len(kept)+1)
	}
}

func sameHour(a, b time.Time) bool { return a.Truncate(time.Hour).Equal(b.Truncate(time.Hour)) }

func (m mark) compare(o mark) int {
	return cmp.Or(cmp.Compare(m.epoch, o.epoch), cmp.Compare(m.sequence, o.sequence))
}

// count adds one generation. within: it is of the range, and not only needed for a reading that is.
func (e *engines) count(r *usagev1.Record, within bool) {
	l := e.log(r.Source, r.EngineEpoch)
	if l.steps == nil { // nobody read its counters
		l.steps = make([]engineSum, 1)
	}
	i, _ := slices.BinarySearchFunc(l.readings, markOf(r), func(x reading, at mark) int { return x.at.compare(at) })
	if n := len(l.readings); i == n && n > 0 && l.readings[n-1].ends() {
		i-- // what died with the engine is journaled a moment later
	}
	if within || i < len(l.readings) {
		l.steps[i].add(r, e.bound)
	}
}

// ends tells whether the engine counted nothing more.
func (r reading) ends() bool { return r.moment == usage.MomentLast || r.moment == usage.MomentLost }

// engineSum adds up generations as a worker journaled them.
type engineSum struct {
	served, probes, cut, unknown uint64
	prompt, completion           tokenSum
}

// tokenSum is what records say, and between which numbers the engine's own count must lie.
type tokenSum struct{ said, least, most int64 }

func (s *tokenSum) add(said, least, most int64) {
	s.said, s.least, s.most = s.said+said, s.least+least, s.most+most
}

// add counts one. What an answer that was cut took of the engine is not known exactly: of its prompt none or all, of its
// completion bound tokens more than the worker saw, because an engine needs a moment to notice. Where a worker does not know a
// number, the bytes that passed bound it. Of several answers to one prompt an engine may count each, and the prompt with each.
func (s *engineSum) add(r *usagev1.Record, bound int64) {
	if r.Kind == usage.KindProbe {
		s.probes++
	} else {
		s.served++
	}
	whole := r.Outcome == usage.OutcomeComplete || r.Kind == usage.KindProbe && r.Outcome == ""
	if !whole {
		s.cut++
	}
	times := int64(min(max(r.GetChoices(), 1), 1<<16))
	known := r.CountedFrom != countedEvents
	p, c := r.GetPromptTokens(), r.GetCompletionTokens()
	switch {
	case r.PromptTokens == nil:
		s.prompt.add(0, 0, times*max(r.GetRequestBytes(), 0)+bound)
	case whole:
		s.prompt.add(p, p, times*p)
	default:
		s.prompt.add(p, 0, times*p)
	}
	switch least := c; {
	case whole && (known && r.CompletionTokens != nil || r.Operation == embeddings):
		s.completion.add(c, c, times*c) // best_of makes more than it gives
	case whole:
		s.unknown++
		s.completion.add(c, 0, times*max(c, r.GetResponseBytes()))
	default:
		if !known {
			least = 0
		}
		s.completion.add(c, least, times*(c+bound))
	}
}

const (
	countedEvents = "events"     // counted_from: by what passed, and so perhaps not as the engine counts
	embeddings    = "embeddings" // the operation that completes nothing
)
