package envoy

import (
	"context"
	"time"
)

const (
	// deathPoll is how often a process whose stream broke is looked at.
	deathPoll = 50 * time.Millisecond
	// deathPause is for what a dead Envoy has sent on its other connections: it may be read after the end of its stream.
	deathPause = 250 * time.Millisecond
)

// callers are the Envoys on the line.
type callers interface {
	// death looks for one that has died and not been told of. waiting: some have left that still run, and that have not come
	// back yet.
	death() (dead, waiting bool)
	// succession is when the first of those came who are on the line; now, when nobody is.
	succession(now time.Time) time.Time
}

// awaitDeath returns when one of them has died, with the time until which requests were its own. gone gets one when one left.
func awaitDeath(ctx context.Context, gone <-chan struct{}, c callers) (time.Time, error) {
	for {
		dead, waiting := c.death()
		if dead {
			select {
			case <-time.After(deathPause):
				return c.succession(time.Now()), nil
			case <-ctx.Done():
				return time.Time{}, ctx.Err()
			}
		}
		var look <-chan time.Time
		if waiting {
			look = time.After(deathPoll)
		}
		select {
		case <-gone:
		case <-look:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
