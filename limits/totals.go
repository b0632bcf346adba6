package limits

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Total is what one limit has counted in a day or a month.
type Total struct {
	ID   string // of the limit
	Kind Kind   // one of RequestsPerDay, TokensPerDay, RequestsPerMonth, TokensPerMonth
	// Start of the period, UTC.
	Start time.Time
	Used  int64
}

// Rebuilder is a store whose counts of days and months can be read, and put back after it has lost them.
type Rebuilder interface {
	// Totals gives what the named limits have counted in the current day and month, nothing for those that counted nothing.
	// The order is any. IDs may be thousands.
	Totals(ctx context.Context, now time.Time, ids []string) ([]Total, error)
	// Raise brings counts up to at least the given totals, and never lowers one, so doing it again, or from several doors,
	// does no harm. Those of periods that are not the current ones are ignored. Not bound to limits that exist.
	Raise(ctx context.Context, now time.Time, ts []Total) error
}

var _ Rebuilder = (*Memory)(nil)

// long are the kinds that have totals.
var long = [...]Kind{RequestsPerDay, TokensPerDay, RequestsPerMonth, TokensPerMonth}

// Totals implements Rebuilder.
func (m *Memory) Totals(_ context.Context, now time.Time, ids []string) (ts []Total, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for _, id := range ids {
		if c := m.counters.byID[id]; c != nil {
			f := Fact{Limit: policy.Limit{ID: id}, Periods: c.counted(&m.calendar)}
			ts = f.appendTotals(ts, &m.calendar)
		}
	}
	return ts, nil
}

// Raise implements Rebuilder.
func (m *Memory) Raise(_ context.Context, now time.Time, ts []Total) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for _, t := range ts {
		span := t.Kind.span()
		if span == Minute || t.Used <= 0 || t.Start.Unix() != m.calendar[span].start {
			continue
		}
		p := &m.counters.of(t.ID).periods[span]
		*p = p.Fit(m.calendar[span].start, m.calendar[span].end)
		if t.Kind.ofTokens() {
			p.Tokens = max(p.Tokens, min(t.Used, maxCount))
		} else {
			p.Requests = max(p.Requests, min(t.Used, maxCount))
		}
	}
	return nil
}

// raiseShared is Raise by what another store is going to count too, so that it holds until the next shareIn.
func (m *Memory) raiseShared(now time.Time, ts []Total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for i := range ts {
		t, span := &ts[i], ts[i].Kind.span()
		if span == Minute || t.Used <= 0 || t.Start.Unix() != m.calendar[span].start {
			continue
		}
		c := m.counters.of(t.ID)
		c.share(&m.calendar, t.Kind, 0) // from now on it is of this period
		counted := c.counted(&m.calendar)[span]
		c.share(&m.calendar, t.Kind, max(0, min(t.Used, maxCount)-counted.used(t.Kind)))
	}
}

// share adds to the shared part.
func (c *counter) share(cal *calendar, k Kind, n int64) {
	s := k.span()
	p := &c.theirs()[s]
	*p = p.Fit(cal[s].start, cal[s].end)
	if k.ofTokens() {
		p.Tokens += n
	} else {
		p.Requests += n
	}
}

// glance is what the shared part of a counter was at some moment.
type glance struct {
	id     string
	shared [spans]Period
}

// heed has the next glances give the limits with quotas of an ask that another store has refused, though nothing is counted here:
// others have used what was asked for.
func (m *Memory) heed(now time.Time, ls []policy.Limit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	for i := range ls {
		if hasQuota(&ls[i]) {
			m.counters.of(ls[i].ID).refused = true
		}
	}
}

// glances gives at most n counters with counts of the current month or to be heeded, of those from a place on, and the place to go on from;
// 0 after the last. As of the latest time seen.
func (m *Memory) glances(from, n int) (gs []glance, next int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for next = from; next < len(m.counters.all) && len(gs) < n; next++ {
		if c := m.counters.all[next]; c.refused || c.counts(&m.calendar, Month) {
			c.refused = false
			g := glance{id: c.id}
			if c.shared != nil {
				g.shared = *c.shared
			}
			gs = append(gs, g)
		}
	}
	if next >= len(m.counters.all) {
		next = 0
	}
	return gs, next
}

// shareIn sets what is shared of day and month to parts of the totals that another store had, and leaves on top what came since
// the glance, which was before the totals were read, and what this store has admitted by itself. So counts go down too,
// as reservations are settled. What is settled later of an admission that is in the totals goes from this store's part in full:
// nobody else knows yet that it is free. What is settled between the glance and the reading may go twice, until the next time.
func (m *Memory) shareIn(at []glance, parts []Total) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range at {
		for _, k := range long {
			then := &at[i].shared[k.span()]
			if n := then.used(k); n != 0 && then.Start == m.calendar[k.span()].start {
				m.counters.of(at[i].id).share(&m.calendar, k, -n)
			}
		}
	}
	for i := range parts {
		if t := &parts[i]; t.Start.Unix() == m.calendar[t.Kind.span()].start {
			m.counters.of(t.ID).share(&m.calendar, t.Kind, min(t.Used, maxCount))
		}
	}
}
