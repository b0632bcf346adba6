package limits

import (
	"context"
	"sync"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// MemoryConfig configures a Memory.
type MemoryConfig struct {
	// LeaseTTL is how long a lease lives without renewal. Default 30 s. Renew at a third of it.
	LeaseTTL time.Duration
	// Remember is how many released admissions are kept, each for LeaseTTL, so that a late second ask about one gets its
	// first answer and takes nothing. Default 65,536; the oldest go first.
	Remember int
	// Elsewhere is what other stores have counted; nil: nothing.
	Elsewhere *Elsewhere
}

// Memory is the Limiter of one process, behind one lock.
//
// Memory is bounded by what is in use: a counter goes when it stands as one never used would (each Acquire looks at two
// counters, so n idle ones are gone after n/2 asks at most), one with quotas when its month is over; an admission when it is
// released or expires. What an admission reserved that expires, because nobody renewed it, stays counted.
type Memory struct {
	cfg MemoryConfig

	mu       sync.Mutex
	clock    time.Time // the latest time seen
	calendar calendar  // of clock
	counters counters
	holdings map[string]*holding // open and remembered, by admission
	open     queue               // by expiry, soonest first: all leases live equally long
	released queue               // by time of release, oldest first
	facts    []Fact              // scratch of Acquire
}

var _ Limiter = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.LeaseTTL <= 0 {
		cfg.LeaseTTL = 30 * time.Second
	}
	if cfg.Remember <= 0 {
		cfg.Remember = 1 << 16
	}
	return &Memory{cfg: cfg, counters: counters{byID: map[string]*counter{}}, holdings: map[string]*holding{}}
}

// Acquire implements Limiter.
func (m *Memory) Acquire(ctx context.Context, now time.Time, ask Ask) (Decision, error) {
	if ask.Admission == "" {
		return Decision{}, ErrNoAdmission
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	if h := m.holdings[ask.Admission]; h != nil {
		return h.decision, nil
	}
	d := decide(m.clock, &m.calendar, m.gather(ask.Limits, ask.doors), ask.Tokens)
	if !d.Admitted {
		m.counters.refit(m.clock, ask.Limits)
		return d, nil
	}
	d.Hold = holdOf(ask, m.clock)
	d.Hold.local = true
	m.admit(ask, d)
	return d, nil
}

// recall gives the answer to an admission that is open or remembered.
func (m *Memory) recall(now time.Time, admission string) (Decision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	if h := m.holdings[admission]; h != nil {
		return h.decision, true
	}
	return Decision{}, false
}

// adopt counts an admission that another store has decided as d, whether there is room for it here or not. In quotas it
// counts in the shared part.
func (m *Memory) adopt(now time.Time, ask Ask, d Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	if m.holdings[ask.Admission] == nil {
		m.admit(ask, d)
	}
}

// gather puts together what is known of each limit, which is one door's share where there are several. The result is valid until
// the next call.
func (m *Memory) gather(ls []policy.Limit, doors int) []Fact {
	m.facts = m.facts[:0]
	for i := range ls {
		f := Fact{Limit: ls[i], Elsewhere: m.cfg.Elsewhere.of(&m.calendar, ls[i].ID).part(doors)}
		if c := m.counters.byID[ls[i].ID]; c != nil {
			f.Bucket, f.InFlight, f.Periods = c.bucket, c.inFlight, c.counted(&m.calendar)
		}
		m.facts = append(m.facts, f)
	}
	return m.facts
}

// admit writes an admission to all its counters.
func (m *Memory) admit(ask Ask, d Decision) {
	h := &holding{decision: d, reserved: max(0, ask.Tokens), expires: m.clock.Add(m.cfg.LeaseTTL)}
	for s := range h.starts {
		h.starts[s] = m.calendar[s].start
	}
	leases, quotas := countHeld(ask.Limits)
	held := make([]*counter, leases+quotas)
	h.leases, h.quotas = held[:0:leases], held[leases:leases]
	for i := range ask.Limits {
		l := &ask.Limits[i]
		counts := hasQuota(l)
		if l.RequestsPerSecond <= 0 && l.Concurrency <= 0 && !counts {
			continue
		}
		c := m.counters.of(l.ID)
		if l.RequestsPerSecond > 0 {
			c.bucket = c.bucket.Fit(m.clock, *l).Take(m.clock).capped(m.clock)
		}
		if l.Concurrency > 0 {
			c.inFlight++
			h.leases = append(h.leases, c)
		}
		if counts {
			c.reserve(&m.calendar, h)
			h.quotas = append(h.quotas, c)
		}
	}
	m.holdings[ask.Admission] = h
	m.open.push(h)
}

// Renew implements Limiter.
func (m *Memory) Renew(_ context.Context, now time.Time, hs []Hold) (lost []Hold, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for _, hold := range hs {
		h := m.holdings[hold.Admission]
		if h == nil || h.in != &m.open {
			lost = append(lost, hold)
			continue
		}
		h.expires = m.clock.Add(m.cfg.LeaseTTL)
		m.open.remove(h)
		m.open.push(h)
	}
	return lost, nil
}

// Release implements Limiter.
func (m *Memory) Release(_ context.Context, now time.Time, hold Hold, used Used) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	h := m.holdings[hold.Admission]
	if h == nil || h.in != &m.open {
		return nil
	}
	m.open.remove(h)
	h.free()
	h.settle(used)
	h.expires = m.clock.Add(m.cfg.LeaseTTL)
	m.released.push(h)
	if m.released.len > m.cfg.Remember {
		m.forget(m.released.first)
	}
	return nil
}

// advance takes note of the time, lets go what has expired by it, and looks for idle counters.
func (m *Memory) advance(now time.Time) {
	if now.After(m.clock) {
		m.clock = now
		if !m.calendar.holds(now) {
			m.calendar = calendarOf(now)
		}
	}
	for h := m.open.first; h != nil && !m.clock.Before(h.expires); h = m.open.first {
		h.free()
		h.settle(Used{Tokens: -1})
		m.forget(h)
	}
	for h := m.released.first; h != nil && !m.clock.Before(h.expires); h = m.released.first {
		m.forget(h)
	}
	m.counters.sweep(m.clock, &m.calendar)
}

func (m *Memory) forget(h *holding) {
	h.in.remove(h)
	delete(m.holdings, h.decision.Hold.Admission)
}

// InFlight gives the leases by limit ID, as of the latest time seen; limits without leases are left out. For status and tests.
func (m *Memory) InFlight() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[string]int{}
	for id, c := range m.counters.byID {
		if c.inFlight > 0 {
			n[id] = int(c.inFlight)
		}
	}
	return n
}
