package limits

import (
	"time"

	"github.com/spokegate/spokegate/policy"
)

// counter is what is stored of one limit ID. It needs no list of its leases: each is known to its holding, which gives
// it back exactly once, and a counter with leases is never dropped.
type counter struct {
	id       string
	bucket   Bucket
	inFlight int64
	periods  [spans]Period
	shared   *[spans]Period // what another store counts too, beside periods; may be below 0. Nil: nothing
	refused  bool           // by another store, whose total is to be read: what it has counted here may be nothing
	place    int            // in counters.all
}

// counted gives what counts, of its own and shared. Periods that are over may be among it where nothing is shared.
func (c *counter) counted(cal *calendar) [spans]Period {
	if c.shared == nil {
		return c.periods
	}
	both := c.periods
	for s := range both {
		both[s] = both[s].Fit(cal[s].start, cal[s].end).plus(c.shared[s].Fit(cal[s].start, cal[s].end))
	}
	return both
}

// theirs gives the shared part, made if need be.
func (c *counter) theirs() *[spans]Period {
	if c.shared == nil {
		c.shared = new([spans]Period)
	}
	return c.shared
}

// idle says that the counter stands as one never used would.
func (c *counter) idle(now time.Time, cal *calendar) bool {
	if c.refused || c.inFlight > 0 || c.bucket.Debt(now) > 0 {
		return false
	}
	for s := range Span(spans) {
		if c.counts(cal, s) {
			return false
		}
	}
	return true
}

// counts says whether anything is counted in a current period.
func (c *counter) counts(cal *calendar, s Span) bool {
	some := func(p *Period) bool { return p.Start >= cal[s].start && (p.Requests != 0 || p.Tokens != 0) }
	return some(&c.periods[s]) || c.shared != nil && some(&c.shared[s])
}

// reserve counts a request in all three periods, of its own or shared.
func (c *counter) reserve(cal *calendar, h *holding) {
	periods := h.part(c)
	for s := range periods {
		periods[s] = periods[s].Fit(cal[s].start, cal[s].end).Take(h.reserved)
	}
}

// counters is the set of counters in use. The zero value lacks its map.
type counters struct {
	byID   map[string]*counter
	all    []*counter
	cursor int
}

// of returns the counter with the ID, made if need be.
func (cs *counters) of(id string) *counter {
	c := cs.byID[id]
	if c == nil {
		c = &counter{id: id, place: len(cs.all)}
		cs.byID[id] = c
		cs.all = append(cs.all, c)
	}
	return c
}

// refit puts existing buckets under changed limits. It takes nothing from them.
func (cs *counters) refit(now time.Time, ls []policy.Limit) {
	for _, l := range ls {
		if c := cs.byID[l.ID]; c != nil && l.RequestsPerSecond > 0 {
			c.bucket = c.bucket.Fit(now, l)
		}
	}
}

// sweep looks at the next two counters, going round, and drops the idle: the work of cleaning is spread over all calls.
func (cs *counters) sweep(now time.Time, cal *calendar) {
	for i := 0; i < 2 && len(cs.all) > 0; i++ {
		if cs.cursor >= len(cs.all) {
			cs.cursor = 0
		}
		if c := cs.all[cs.cursor]; c.idle(now, cal) {
			cs.drop(c)
		} else {
			cs.cursor++
		}
	}
}

func (cs *counters) drop(c *counter) {
	last := len(cs.all) - 1
	cs.all[c.place] = cs.all[last]
	cs.all[c.place].place = c.place
	cs.all[last] = nil
	cs.all = cs.all[:last]
	delete(cs.byID, c.id)
}

// holding is an admission that is open, or released and still remembered.
type holding struct {
	decision Decision
	leases   []*counter // that count it while it is open
	quotas   []*counter // in which it is to be settled
	reserved int64
	starts   [spans]int64 // of the periods in which it is counted
	expires  time.Time

	in         *queue
	prev, next *holding
}

// free gives the leases back, once.
func (h *holding) free() {
	for _, c := range h.leases {
		c.inFlight--
	}
	h.leases = nil
}

// part is where a counter counts this admission.
func (h *holding) part(c *counter) *[spans]Period {
	if h.decision.Hold.local {
		return &c.periods
	}
	return c.theirs()
}

// settle corrects what was reserved, once.
func (h *holding) settle(used Used) {
	for _, c := range h.quotas {
		periods := h.part(c)
		for s := range periods {
			if h.decision.Hold.local {
				periods[s] = periods[s].Settle(h.starts[s], h.reserved, used)
			} else { // below 0 where it was counted in part by now: see shareIn
				periods[s] = periods[s].settled(h.starts[s], h.reserved, used)
			}
		}
	}
	h.quotas = nil
}

// queue is a list of holdings, first in, first out, from which any can be taken.
type queue struct {
	first, last *holding
	len         int
}

func (q *queue) push(h *holding) {
	h.in, h.prev, h.next = q, q.last, nil
	if q.last == nil {
		q.first = h
	} else {
		q.last.next = h
	}
	q.last = h
	q.len++
}

func (q *queue) remove(h *holding) {
	if h.prev == nil {
		q.first = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		q.last = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.in, h.prev, h.next = nil, nil, nil
	q.len--
}
