package limits

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Look implements Limiter.
func (m *Memory) Look(_ context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	return m.look(now, ls, 1), nil
}

// look is Look at one door's share of limits.
func (m *Memory) look(now time.Time, ls []policy.Limit, doors int) []Standing {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(now)
	return standings(m.clock, &m.calendar, m.gather(ls, doors))
}

// Look implements Limiter. While the primary is away they are the standings of this door's share.
func (f *Fallback) Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	if before := f.outage.Load(); !before.away() {
		all, err := f.primary.Look(ctx, now, ls)
		if err == nil || !f.failed(before, now, err) || left(ctx) {
			return all, err
		}
	}
	doors := f.primary.Doors()
	return f.local.look(now, shares(ls, doors, 1), doors), nil
}

// Began is when the period began that a kind of quota counts in now; zero for a kind that counts in none.
func (k Kind) Began(now time.Time) time.Time {
	if k < TokensPerMinute {
		return time.Time{}
	}
	start, _ := k.span().Bounds(now)
	return time.Unix(start, 0).UTC()
}
