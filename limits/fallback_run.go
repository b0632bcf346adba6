package limits

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/policy"
)

const (
	maxProbe = 5 * time.Second
	// steady is how long the primary has to stay for it to be tried at the first pace when it goes again.
	steady = 10 * time.Second
)

// run announces the door, three times in the time for which one announcement holds, and while the primary is away tries it.
// Both are the same call.
func (f *Fallback) run(ctx context.Context) {
	defer close(f.ended)
	timer := time.NewTimer(0) // the first one now
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.tripped:
		case <-timer.C:
			f.beat(ctx)
		}
		if o := f.outage.Load(); o.away() {
			timer.Reset(f.pause(o))
		} else {
			timer.Reset(f.primary.DoorTTL() / 3)
		}
	}
}

func (f *Fallback) beat(ctx context.Context) {
	before := f.outage.Load()
	var saw *seen
	if !before.away() {
		saw = f.see(ctx, f.cfg.Now())
	}
	err := f.primary.Announce(ctx, f.cfg.Now())
	if err == nil {
		f.metrics.doors.Set(float64(f.primary.Doors()))
		err = f.rebuild(ctx, f.cfg.Now(), saw)
	}
	switch {
	case err == nil:
		f.back(f.cfg.Now())
	case ctx.Err() == nil && !before.away():
		f.failed(before, f.cfg.Now(), err)
	}
}

// pause is the wait before the next try in an outage.
func (f *Fallback) pause(o *outage) time.Duration {
	return min(f.cfg.Probe<<min(o.quick, 10), maxProbe)
}

// shares gives a door's part of each limit, for a request of so many tokens. Whole requests are rounded down, so that the
// shares together are not above the limit, but everyone has one: a request that is within the limit is within a share of
// which nothing is used.
func shares(ls []policy.Limit, doors int, tokens int64) []policy.Limit {
	if doors <= 1 {
		return ls
	}
	part := make([]policy.Limit, len(ls))
	for i, l := range ls {
		l.RequestsPerSecond /= float64(doors)
		l.Burst = share(l.Burst, doors, 1)
		l.Concurrency = share(l.Concurrency, doors, 1)
		l.TokensPerMinute = share(l.TokensPerMinute, doors, tokens)
		l.RequestsPerDay = share(l.RequestsPerDay, doors, 1)
		l.TokensPerDay = share(l.TokensPerDay, doors, tokens)
		l.RequestsPerMonth = share(l.RequestsPerMonth, doors, 1)
		l.TokensPerMonth = share(l.TokensPerMonth, doors, tokens)
		part[i] = l
	}
	return part
}

// share is a part of a limit, at least what one request takes where the limit allows that; of none it is none.
func share[N int | int64](limit N, doors int, one N) N {
	if limit <= 0 {
		return limit
	}
	return max(1, limit/N(doors), min(limit, one))
}
