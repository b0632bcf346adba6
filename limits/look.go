package limits

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Look implements Limiter.
func (m *Memory) Look(_ context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	return standings(m.clock, &m.calendar, m.gather(ls)), nil
}

// Look implements Limiter. While the primary is away they are the standings of this door's share.
func (f *Fallback) Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	if before := f.outage.Load(); !before.away() {
		all, err := f.primary.Look(ctx, now, ls)
		if err == nil || !f.failed(before, now, err) || left(ctx) {
			return all, err
		}
	}
	return f.local.Look(ctx, now, shares(ls, f.primary.Doors(), 1))
}

// Began is when the period began that a kind of quota counts in now; zero for a kind that counts in none.
func (k Kind) Began(now time.Time) time.Time {
	if k < TokensPerMinute {
		return time.Time{}
	}
	start, _ := k.span().Bounds(now)
	return time.Unix(start, 0).UTC()
}
