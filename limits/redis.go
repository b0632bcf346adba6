package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/spokegate/spokegate/policy"
)

// RedisConfig configures a Redis.
type RedisConfig struct {
	// URL of the Redis: see ParseRedisURL. Not used when there is a Client.
	URL string
	// Client to use instead of one made from URL. Its owner closes it, and gives it timeouts.
	Client redis.UniversalClient
	// Spoke whose doors share the counters: all its keys begin with {spokegate:SPOKE}, so they lie together in a cluster.
	// Without braces.
	Spoke string
	// Door names this door to the others; each needs a name of its own.
	Door string
	// LeaseTTL is how long a lease lives without renewal, whole milliseconds. Default 30 s. Renew at a third of it.
	LeaseTTL time.Duration
	// Timeout of a question. Default 150 ms: Envoy waits 5 s for the whole check, and a door that hears nothing from Redis
	// has to decide by itself in that time.
	Timeout time.Duration
	// DoorTTL is how long a door counts as there after it announced itself. Default 15 s.
	DoorTTL time.Duration
	// Waiting is how many releases may wait for Redis. Default 16,384; one that finds no place is lost, and its lease expires.
	Waiting    int
	Registerer prometheus.Registerer // nil: none
	Log        *slog.Logger          // nil: none
}

func (c *RedisConfig) complete() error {
	if c.Client == nil && c.URL == "" {
		return errors.New("limits: neither a URL nor a client of Redis is given")
	}
	if strings.ContainsAny(c.Spoke, "{}") {
		return fmt.Errorf("limits: the spoke's name %q has braces, which Redis Cluster gives a meaning", c.Spoke)
	}
	for d, standard := range map[*time.Duration]time.Duration{
		&c.LeaseTTL: 30 * time.Second, &c.Timeout: 150 * time.Millisecond, &c.DoorTTL: 15 * time.Second,
	} {
		if *d <= 0 {
			*d = standard
		}
	}
	if c.Waiting <= 0 {
		c.Waiting = 1 << 14
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// slack is how much longer than needed a key lives: what Redis's clock may be set back without losing one.
const slack = time.Second

// Redis is the Limiter that the doors of a spoke share.
//
// One Acquire is one round trip: a script reads, judges as Decide does, and writes, by Redis's own clock; now is not used.
// A release is handed to a goroutine and reaches Redis a moment later: Flush waits for it.
//
// When an Acquire fails, Redis may have done it all the same, or may do it later. So it is given up in the background: what
// it took is freed, and if it comes late it takes nothing. A new Acquire for the same admission is judged anew; one that
// overlaps with the old one counts once.
//
// An admission asked again has its first answer, until it has been over for LeaseTTL. All state is in keys that expire when
// they have no more to say: a full bucket's at once, the others after LeaseTTL.
//
// Needs Redis 7.0 or newer (or Valkey), that evicts nothing: maxmemory-policy noeviction.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	owned    bool // close the client
	prefix   string
	scripts  scripts
	metrics  *redisMetrics
	attempts atomic.Int64
	releases *releases
	doors    doorCount

	givenTime bool // go by the now of each call; for tests
	slack     time.Duration
}

var _ Limiter = (*Redis)(nil)

// NewRedis makes a limiter on Redis. It does not connect: a Redis that is away when the door starts is no error.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	r := &Redis{cfg: cfg, client: cfg.Client, prefix: "{spokegate:" + cfg.Spoke + "}:", scripts: newScripts(), slack: slack}
	if r.client == nil {
		var err error
		if r.client, err = dial(cfg.URL, cfg.Timeout); err != nil {
			return nil, err
		}
		r.owned = true
	}
	r.metrics = newRedisMetrics(cfg.Registerer)
	r.releases = newReleases(cfg.Waiting, cfg.LeaseTTL, r.metrics.lost, r.free)
	return r, nil
}

// Acquire implements Limiter. It never takes longer than RedisConfig.Timeout.
func (r *Redis) Acquire(ctx context.Context, now time.Time, ask Ask) (Decision, error) {
	if ask.Admission == "" {
		return Decision{}, ErrNoAdmission
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	attempt := r.attempt(now)
	c := r.question(now, ask, attempt)
	within, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	reply, err := r.scripts.acquire.Run(within, r.client, c.keys, c.args...).Text()
	var d Decision
	if err == nil {
		d, err = decision(reply, ask.Admission, ask.Limits)
	}
	if err != nil {
		r.giveUp(now, ask, attempt)
		return Decision{}, r.failed(ctx, "acquire", err)
	}
	return d, nil
}

// attempt numbers the asks of this door, rising also over a restart.
func (r *Redis) attempt(now time.Time) int64 {
	for {
		last := r.attempts.Load()
		next := max(last+1, now.UnixMicro())
		if r.attempts.CompareAndSwap(last, next) {
			return next
		}
	}
}

// question is the call of redis_acquire.lua.
func (r *Redis) question(now time.Time, ask Ask, attempt int64) call {
	items := itemsOf(ask.Limits)
	c := call{keys: make([]string, 1, 1+len(items)), args: make([]any, 7)}
	numbers := make([]byte, 0, 16*len(items))
	c.keys[0] = r.record(ask.Admission)
	c.args[0], c.args[1], c.args[2] = r.time(now), attempt, ask.Admission
	c.args[3], c.args[4] = r.cfg.LeaseTTL.Milliseconds(), r.slack.Milliseconds()
	c.args[5] = appendLimits(make([]byte, 0, 64*len(ask.Limits)), ask.Limits)
	for _, it := range items {
		l := &ask.Limits[it.limit]
		if it.kind == Rate {
			c.keys = append(c.keys, r.prefix+"rate:"+l.ID)
		} else {
			c.keys = append(c.keys, r.leases(l.ID))
		}
		numbers = it.appendNumbers(numbers, l)
	}
	c.args[6] = numbers
	return c
}

func (r *Redis) record(admission string) string { return r.prefix + "admission:" + admission }
func (r *Redis) leases(id string) string        { return r.prefix + "leases:" + id }

// time is the scripts' first argument.
func (r *Redis) time(now time.Time) string {
	if r.givenTime {
		return strconv.FormatInt(now.UnixMicro(), 10)
	}
	return ""
}

// ofHold is a call that is about what a hold holds.
func (r *Redis) ofHold(now time.Time, h Hold, last any) call {
	c := call{keys: make([]string, 1, 1+len(h.Leases))}
	c.keys[0] = r.record(h.Admission)
	for _, id := range h.Leases {
		c.keys = append(c.keys, r.leases(id))
	}
	c.args = []any{r.time(now), h.Admission, r.cfg.LeaseTTL.Milliseconds(), r.slack.Milliseconds(), last}
	return c
}

// Renew implements Limiter.
func (r *Redis) Renew(ctx context.Context, now time.Time, hs []Hold) (lost []Hold, err error) {
	return r.renew(ctx, now, hs, func(Hold) string { return "" })
}

// Restore puts back the leases of requests that run, after Redis has lost them or let them expire, as when it was
// restarted empty. It does so also above the limit. What was released stays released, and is returned.
func (r *Redis) Restore(ctx context.Context, now time.Time, hs []Hold) (released []Hold, err error) {
	return r.renew(ctx, now, hs, func(h Hold) string {
		var ls []policy.Limit
		for _, id := range h.Leases {
			ls = append(ls, policy.Limit{ID: id, Concurrency: 1})
		}
		return noAnswer + string(appendLimits(nil, ls))
	})
}

func (r *Redis) renew(ctx context.Context, now time.Time, hs []Hold, back func(Hold) string) (lost []Hold, err error) {
	calls := make([]call, len(hs))
	for i, h := range hs {
		calls[i] = r.ofHold(now, h, back(h))
	}
	kept, err := r.many(ctx, "renew", r.scripts.renew, calls)
	if err != nil {
		return nil, err
	}
	for i, k := range kept {
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

// failed counts an error of Redis, unless it is the caller who left.
func (r *Redis) failed(ctx context.Context, op string, err error) error {
	if !left(ctx) {
		r.metrics.errors.WithLabelValues(op).Inc()
	}
	return fmt.Errorf("limits: redis: %w", err)
}

// left says whether the caller waits no longer. A connection notices the deadline that it was given by a clock of its own,
// at times a moment before the context does.
func left(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Release implements Limiter. It returns at once; the leases are free a moment later, or, when Redis is away, when it is
// back or they expire. An error says that nobody will release them: then they expire too.
func (r *Redis) Release(_ context.Context, now time.Time, h Hold, _ Used) error {
	if h.Admission == "" {
		return nil
	}
	return r.releases.add(freeing{hold: h, at: now})
}

// giveUp frees what an ask without an answer may have taken, or may yet take.
func (r *Redis) giveUp(now time.Time, ask Ask, attempt int64) {
	f := freeing{hold: Hold{Admission: ask.Admission, Leases: leaseIDs(ask.Limits)}, at: now, attempt: attempt}
	if err := r.releases.add(f); err != nil {
		r.cfg.Log.Warn("a lease that may have been taken is not freed, it will expire", "admission", ask.Admission, "err", err)
	}
}

// free brings a batch of releases to Redis.
func (r *Redis) free(ctx context.Context, batch []freeing) error {
	calls := make([]call, len(batch))
	for i, f := range batch {
		calls[i] = r.ofHold(f.at, f.hold, f.attempt)
	}
	_, err := r.many(ctx, "release", r.scripts.release, calls)
	return err
}

// Flush waits until everything released so far is free in Redis, or is lost.
func (r *Redis) Flush(ctx context.Context) error { return r.releases.flush(ctx) }

// Close brings what was released to Redis, takes this door out of the doors, and closes the client if it made it. When Redis
// is away it gives up at once: what is left expires. Later releases are refused.
func (r *Redis) Close(ctx context.Context) error {
	err := r.releases.close(ctx)
	if err == nil {
		err = r.withdraw(ctx)
	}
	if r.owned {
		err = errors.Join(err, r.client.Close())
	}
	return err
}
