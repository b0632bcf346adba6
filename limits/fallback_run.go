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
	err := f.primary.Announce(ctx, f.cfg.Now())
	switch {
	case err == nil:
		f.metrics.doors.Set(float64(f.primary.Doors()))
		f.back(f.cfg.Now())
	case ctx.Err() == nil && !before.away():
		f.failed(before, f.cfg.Now(), err)
	}
}

// pause is the wait before the next try in an outage.
func (f *Fallback) pause(o *outage) time.Duration {
	return min(f.cfg.Probe<<min(o.quick, 10), maxProbe)
}

// shares gives a door's part of each limit. Whole requests are rounded down, so that the shares together are not above the
// limit, but everyone has one.
func shares(ls []policy.Limit, doors int) []policy.Limit {
	if doors <= 1 {
		return ls
	}
	part := make([]policy.Limit, len(ls))
	for i, l := range ls {
		l.RequestsPerSecond /= float64(doors)
		if l.Burst > 0 {
			l.Burst = max(1, l.Burst/doors)
		}
		if l.Concurrency > 0 {
			l.Concurrency = max(1, l.Concurrency/doors)
		}
		part[i] = l
	}
	return part
}
