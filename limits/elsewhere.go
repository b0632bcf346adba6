package limits

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Beside is what a limit has counted at other stores in the current day and month. It counts as if it had been used here.
type Beside struct{ DayRequests, DayTokens, MonthRequests, MonthTokens int64 }

// of gives what a kind of quota counts of it.
func (b *Beside) of(k Kind) int64 {
	switch k {
	case RequestsPerDay:
		return b.DayRequests
	case TokensPerDay:
		return b.DayTokens
	case RequestsPerMonth:
		return b.MonthRequests
	case TokensPerMonth:
		return b.MonthTokens
	}
	return 0
}

func (b *Beside) add(k Kind, n int64) {
	switch k {
	case RequestsPerDay:
		b.DayRequests += n
	case TokensPerDay:
		b.DayTokens += n
	case RequestsPerMonth:
		b.MonthRequests += n
	case TokensPerMonth:
		b.MonthTokens += n
	}
}

// part is a door's part of it, rounded up.
func (b Beside) part(doors int) Beside {
	if doors <= 1 {
		return b
	}
	n := int64(doors)
	return Beside{(b.DayRequests + n - 1) / n, (b.DayTokens + n - 1) / n, (b.MonthRequests + n - 1) / n, (b.MonthTokens + n - 1) / n}
}

// Elsewhere is what limits have counted at other stores, as a hub tells it, so that a quota holds across spokes: to within what
// was used since that was told last. Rates, concurrency and quotas of a minute are each store's own. The zero value knows of
// nothing. It is safe for concurrent use.
type Elsewhere struct {
	some atomic.Bool // anything is known
	mu   sync.RWMutex
	hub  string
	byID map[string]*[len(long)]told // by place in long
	day  int64                       // of the last forgetting
}

// told is one sum. It is of the period that began at start.
type told struct {
	start       int64
	used, floor int64
}

// Take notes what a hub says, absolute, so that it may be said again. hub names one start of it: one that has just started does
// not know all spokes yet, so what another has said stands as the least.
func (e *Elsewhere) Take(hub string, now time.Time, ts []Total) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byID == nil {
		e.byID = map[string]*[len(long)]told{}
	}
	if hub != e.hub {
		e.hub = hub
		for _, sums := range e.byID {
			for i := range sums {
				sums[i].floor, sums[i].used = max(sums[i].floor, sums[i].used), 0
			}
		}
	}
	e.forget(now)
	for i := range ts {
		e.take(&ts[i])
	}
	e.some.Store(len(e.byID) > 0)
}

func (e *Elsewhere) take(t *Total) {
	for i, k := range long {
		if k != t.Kind {
			continue
		}
		sums := e.byID[t.ID]
		if sums == nil {
			sums = new([len(long)]told)
			e.byID[t.ID] = sums
		}
		if start := t.Start.Unix(); sums[i].start < start {
			sums[i] = told{start: start}
		}
		if sums[i].start == t.Start.Unix() {
			sums[i].used = max(0, min(t.Used, maxCount))
		}
	}
}

// forget drops once a day what is over.
func (e *Elsewhere) forget(now time.Time) {
	c := calendarOf(now)
	if c[Day].start == e.day {
		return
	}
	e.day = c[Day].start
	for id, sums := range e.byID {
		current := false
		for i, k := range long {
			current = current || sums[i].start >= c[k.span()].start
		}
		if !current {
			delete(e.byID, id)
		}
	}
}

// of is what counts for a limit now.
func (e *Elsewhere) of(c *calendar, id string) (b Beside) {
	if e == nil || !e.some.Load() {
		return b
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if sums := e.byID[id]; sums != nil {
		for i, k := range long {
			if sums[i].start == c[k.span()].start {
				b.add(k, max(sums[i].used, sums[i].floor))
			}
		}
	}
	return b
}

// all is what counts for each limit with a quota; nil: nothing does.
func (e *Elsewhere) all(now time.Time, ls []policy.Limit) (bs []Beside) {
	if e == nil || !e.some.Load() {
		return nil
	}
	c := calendarOf(now)
	for i := range ls {
		if !hasQuota(&ls[i]) {
			continue
		}
		if b := e.of(&c, ls[i].ID); b != (Beside{}) {
			if bs == nil {
				bs = make([]Beside, len(ls))
			}
			bs[i] = b
		}
	}
	return bs
}

// Counted is what this store has counted by itself in the current day and month. What was given back whole is there as 0, so that
// who was told of more hears of it.
func (m *Memory) Counted(now time.Time) (ts []Total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for _, c := range m.counters.all {
		for _, k := range long {
			if p := &c.periods[k.span()]; p.Start == m.calendar[k.span()].start {
				ts = append(ts, Total{ID: c.id, Kind: k, Start: time.Unix(p.Start, 0).UTC(), Used: p.used(k)})
			}
		}
	}
	return ts
}

// Counted is what the shared store has counted in the current day and month, of limits that this door has asked about, as of the
// last beats; see see. What was given back whole is there as 0.
func (f *Fallback) Counted(now time.Time) (ts []Total) {
	c := calendarOf(now)
	for _, t := range f.ledger.all() {
		if t.Start.Unix() == c[t.Kind.span()].start {
			ts = append(ts, t)
		}
	}
	return ts
}
