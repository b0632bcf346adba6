package limits

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spokegate/spokegate/policy"
)

// Renew implements Limiter.
func (r *Redis) Renew(ctx context.Context, now time.Time, hs []Hold) (lost []Hold, err error) {
	calls := make([]call, len(hs))
	for i, h := range hs {
		calls[i] = call{keys: r.heldKeys(h), args: []any{appendNumbers(nil, r.time(now), micros(r.cfg.LeaseTTL)), h.Admission, r.life}}
	}
	return r.kept(ctx, "renew", r.scripts.renew, hs, calls)
}

// Restore puts back the leases of requests that run, and what is to be settled of them, after Redis has lost them or let them
// expire, as when it was restarted empty. It does so also above the limit. What was released stays released, and is returned.
func (r *Redis) Restore(ctx context.Context, now time.Time, hs []Hold) (released []Hold, err error) {
	calls := make([]call, len(hs))
	for i, h := range hs {
		keys := r.heldKeys(h)
		for _, id := range h.Leases {
			keys = append(keys, r.counter(id))
		}
		head := appendNumbers(nil, r.time(now), micros(r.cfg.LeaseTTL), float64(h.At.UnixMicro()), float64(h.Reserved))
		calls[i] = call{keys: keys, args: []any{head, h.Admission, r.life, appendLimits(nil, limitsOf(h))}}
	}
	return r.kept(ctx, "renew", r.scripts.restore, hs, calls)
}

// limitsOf gives limits whose hold this is.
func limitsOf(h Hold) []policy.Limit {
	var ls []policy.Limit
	for _, id := range h.Leases {
		ls = append(ls, policy.Limit{ID: id, Concurrency: 1})
	}
	for _, id := range h.Quotas {
		ls = append(ls, policy.Limit{ID: id, TokensPerMonth: math.MaxInt64})
	}
	return ls
}

// heldKeys are the record and the sets of leases.
func (r *Redis) heldKeys(h Hold) []string {
	keys := append(make([]string, 0, 1+2*len(h.Leases)), r.record(h.Admission))
	for _, id := range h.Leases {
		keys = append(keys, r.leases(id))
	}
	return keys
}

// kept runs a script for each hold, and gives those for which it answers 0.
func (r *Redis) kept(ctx context.Context, op string, s *redis.Script, hs []Hold, calls []call) (lost []Hold, err error) {
	replies, err := r.many(ctx, op, s, calls)
	if err != nil {
		return nil, err
	}
	for i, k := range replies {
		if n, err := k.Int(); err != nil {
			return nil, fmt.Errorf("%w: %w", errReply, err)
		} else if n == 0 {
			lost = append(lost, hs[i])
		}
	}
	return lost, nil
}

// many runs a script once for each call, in one round trip, which may take longer than that of one call.
func (r *Redis) many(ctx context.Context, op string, s *redis.Script, calls []call) ([]*redis.Cmd, error) {
	within, cancel := context.WithTimeout(ctx, max(r.cfg.Timeout, time.Second))
	defer cancel()
	replies, err := runAll(within, r.client, s, calls)
	if err != nil {
		return nil, r.failed(ctx, op, err)
	}
	return replies, nil
}

// Release implements Limiter. It returns at once; the leases are free and the tokens settled a moment later, or, when Redis is
// away, when it is back. An error says that nobody will: then the leases expire and the reservation stands. So it does where
// Redis does not remember the admission any more.
func (r *Redis) Release(_ context.Context, now time.Time, h Hold, used Used) error {
	if h.Admission == "" {
		return nil
	}
	return r.releases.add(freeing{hold: h, at: now, used: used})
}

// free brings a batch of releases to Redis.
func (r *Redis) free(ctx context.Context, batch []freeing) error {
	calls := make([]call, len(batch))
	for i := range batch {
		calls[i] = r.freed(&batch[i])
	}
	_, err := r.many(ctx, "release", r.scripts.release, calls)
	return err
}

// freed is the call of redis_release.lua.
func (r *Redis) freed(f *freeing) call {
	h := &f.hold
	keys := append(make([]string, 0, 1+2*len(h.Leases)+len(h.Quotas)), r.record(h.Admission))
	letters := make([]byte, 0, len(h.Leases)+len(h.Quotas))
	place := make(map[string]int, len(h.Leases))
	for _, id := range h.Leases {
		place[id] = len(letters)
		keys, letters = append(keys, r.counter(id)), append(letters, 'L')
	}
	for _, id := range h.Quotas {
		if i, both := place[id]; both {
			letters[i] = 'B'
		} else {
			keys, letters = append(keys, r.counter(id)), append(letters, 'Q')
		}
	}
	for _, id := range h.Leases {
		keys = append(keys, r.leases(id))
	}
	unserved := 0.0
	if f.used.Unserved {
		unserved = 1
	}
	head := appendNumbers(nil, r.time(f.at), float64(f.attempt), micros(r.cfg.LeaseTTL), float64(f.used.Tokens), unserved)
	return call{keys: keys, args: []any{head, h.Admission, letters, r.life}}
}

// Flush waits until everything released so far is free in Redis, or is lost.
func (r *Redis) Flush(ctx context.Context) error { return r.releases.flush(ctx) }
