package limits

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// totalsBatch is how many limits one round trip reads or raises: Redis does nothing else meanwhile.
const totalsBatch = 500

// Totals implements Rebuilder, by Redis's clock.
func (r *Redis) Totals(ctx context.Context, now time.Time, ids []string) (ts []Total, err error) {
	for len(ids) > 0 {
		n := min(totalsBatch, len(ids))
		keys, ls := make([]string, n), make([]policy.Limit, n)
		for i, id := range ids[:n] {
			keys[i], ls[i].ID = r.counter(id), id
		}
		at, facts, err := r.look(ctx, now, keys, ls)
		if err != nil {
			return nil, err
		}
		c := calendarOf(at)
		for i := range facts {
			ts = facts[i].appendTotals(ts, &c)
		}
		ids = ids[n:]
	}
	return ts, nil
}

// appendTotals gives what is counted in the current day and month.
func (f *Fact) appendTotals(ts []Total, c *calendar) []Total {
	for _, k := range long {
		p := &f.Periods[k.span()]
		if used := p.used(k); used > 0 && p.Start == c[k.span()].start {
			ts = append(ts, Total{ID: f.Limit.ID, Kind: k, Start: time.Unix(p.Start, 0).UTC(), Used: used})
		}
	}
	return ts
}

// Raise implements Rebuilder, by Redis's clock.
func (r *Redis) Raise(ctx context.Context, now time.Time, ts []Total) error {
	var calls []call
	for i := range ts {
		t := &ts[i]
		if start, _ := t.Kind.span().Bounds(t.Start); t.Kind.span() != Minute && t.Used > 0 && t.Start.Unix() == start {
			calls = append(calls, r.raised(now, t))
		}
	}
	for len(calls) > 0 {
		n := min(totalsBatch, len(calls))
		if _, err := r.many(ctx, "raise", r.scripts.raise, calls[:n]); err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// raised is the call of redis_raise.lua.
func (r *Redis) raised(now time.Time, t *Total) call {
	day, month, requests, tokens := -1.0, -1.0, 0.0, 0.0
	if t.Kind.span() == Day {
		day = float64(t.Start.Unix() / (24 * 60 * 60))
	} else {
		y, m, _ := t.Start.UTC().Date()
		month = float64(y*12 + int(m) - 1)
	}
	if used := float64(min(t.Used, maxCount)); t.Kind.ofTokens() {
		tokens = used
	} else {
		requests = used
	}
	head := appendNumbers(nil, r.time(now), micros(r.cfg.LeaseTTL), micros(r.slack), day, month, requests, tokens)
	return call{keys: []string{r.counter(t.ID)}, args: []any{head}}
}
