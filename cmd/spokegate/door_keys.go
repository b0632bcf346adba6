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
	// leastRotation leaves every context of a key time to be used up before the next key but one.
	leastRotation = 5 * time.Minute
)

func (d *door) rotateKeys(ctx context.Context) error {
	return rotateKeys(ctx, d.minter, d.rotateKey, rotationLead, d.log)
}

// rotateKeys changes the key that contexts are signed with, again and again: first workers hear of the next one, then it is used.
func rotateKeys(ctx context.Context, m *identity.Minter, every, lead time.Duration, log *slog.Logger) error {
	if every == 0 {
		return nil
	}
	for pause(ctx, every-lead) {
		m.Announce()
		if !pause(ctx, lead) {
			break
		}
		m.Rotate()
		keys, _ := m.Keys()
		log.Info("contexts are signed with another key", "kid", keys[0].ID)
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
