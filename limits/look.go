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

// Look implements Limiter.
func (r *Redis) Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	return nil, nil
}

// Look implements Limiter.
func (f *Fallback) Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	return f.primary.Look(ctx, now, ls)
}
