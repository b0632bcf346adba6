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
			f := Fact{Limit: policy.Limit{ID: id}, Periods: c.periods}
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

// quotaIDs names at most n counters with counts of the current month, of those from a place on, and the place to go on from;
// 0 after the last. As of the latest time seen.
func (m *Memory) quotaIDs(from, n int) (ids []string, next int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for next = from; next < len(m.counters.all) && len(ids) < n; next++ {
		c := m.counters.all[next]
		if p := c.periods[Month]; p.Start == m.calendar[Month].start && p.Requests+p.Tokens > 0 {
			ids = append(ids, c.id)
		}
	}
	if next >= len(m.counters.all) {
		next = 0
	}
	return ids, next
}
