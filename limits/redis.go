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
	Waiting int
	// Elsewhere is what other stores have counted; nil: nothing.
	Elsewhere  *Elsewhere
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
// it took is freed, what it reserved is given back, and if it comes late it takes nothing. A new Acquire for the same admission
// is judged anew; one that overlaps with the old one counts once.
//
// An admission asked again has its first answer, until it has been over for LeaseTTL. One that is neither renewed nor released
// for LeaseTTL is forgotten: its lease is free, its reservation stands.
//
// Each limit has one counter, and a set of leases. They are in keys that expire when they have no more to say: those of a
// quota 31 days after the last day on which it counted, the others soon. One small key stays: the name of Redis's memory, by
// which doors notice that it has lost it.
//
// Needs Redis 7.0 or newer (or Valkey), that evicts nothing: maxmemory-policy noeviction.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	owned    bool // close the client
	prefix   string
	life     string // of a lease's and a record's key, in ms
	scripts  scripts
	metrics  *redisMetrics
	attempts atomic.Int64
	asks     *asks
	releases *releases
	doors    doorCount
	memory   atomic.Pointer[string]

	givenTime bool // go by the now of each call; for tests
	slack     time.Duration
}

var _ Limiter = (*Redis)(nil)

// NewRedis makes a limiter on Redis. It does not connect: a Redis that is away when the door starts is no error.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	r := &Redis{cfg: cfg, client: cfg.Client, prefix: "{spokegate:" + cfg.Spoke + "}:", scripts: newScripts()}
	if r.client == nil {
		var err error
		if r.client, err = dial(cfg.URL, cfg.Timeout); err != nil {
			return nil, err
		}
		r.owned = true
	}
	r.setSlack(slack)
	r.metrics = newRedisMetrics(cfg.Registerer)
	r.asks = &asks{client: r.client, script: r.scripts.acquire, timeout: cfg.Timeout}
	r.releases = newReleases(cfg.Waiting, cfg.LeaseTTL, r.metrics.lost, r.free)
	return r, nil
}

func (r *Redis) setSlack(d time.Duration) {
	r.slack, r.life = d, strconv.FormatInt((r.cfg.LeaseTTL+d).Milliseconds(), 10)
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

// Close brings what was released to Redis, takes this door out of the doors, and closes the client if it made it. When Redis
// is away it gives up at once: what is left expires. Later releases are refused.
func (r *Redis) Close(ctx context.Context) error {
	err := r.releases.close(ctx)
	if err == nil {
		if gone := r.withdraw(ctx); gone != nil { // nothing is lost
			r.cfg.Log.Info("this door still counts as there for a while", "for", r.cfg.DoorTTL, "err", gone)
		}
	}
	if r.owned {
		err = errors.Join(err, r.client.Close())
	}
	r.asks.late.Wait() // at most for the timeout of a batch
	return err
}
