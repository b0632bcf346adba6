package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spokegate/spokegate/identity"
)

const (
	// rotationLead is how long workers have to learn of a key before it is used.
	rotationLead = 5 * time.Second
	// formerLife is how long contexts of a key may come after its last.
	formerLife = identity.Life + 2*identity.Skew
	// leastRotation leaves every context of a key time to be used up before the next key but one.
	leastRotation = 5 * time.Minute
)

func (d *door) rotateKeys(ctx context.Context) error {
	return rotateKeys(ctx, d.minter, d.rotateKey, rotationLead, formerLife, d.log)
}

// rotateKeys changes the key that contexts are signed with, again and again: first workers hear of the next one, then it is
// used, and those that join are told of the one before until its last context is over.
func rotateKeys(ctx context.Context, m *identity.Minter, every, lead, former time.Duration, log *slog.Logger) error {
	if every == 0 {
		return nil
	}
	for wait := every - lead; pause(ctx, wait); wait = every - lead - former {
		m.Announce()
		if !pause(ctx, lead) {
			break
		}
		m.Rotate()
		keys, _ := m.Keys()
		log.Info("contexts are signed with another key", "kid", keys[0].ID)
		if !pause(ctx, former) {
			break
		}
		m.Forget()
	}
	return nil
}

// pause is false when ctx is done before the time is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
