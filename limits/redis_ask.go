package limits

import (
	"context"
	"errors"
	"time"

	"github.com/spokegate/spokegate/policy"
)

var (
	errReply  = errors.New("limits: redis gave an answer that makes no sense")
	errGiveUp = errors.New("limits: the ask was given up before it reached redis")
)

// Acquire implements Limiter. It never takes longer than RedisConfig.Timeout.
func (r *Redis) Acquire(ctx context.Context, now time.Time, ask Ask) (Decision, error) {
	if ask.Admission == "" {
		return Decision{}, ErrNoAdmission
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	ask.Tokens = max(0, ask.Tokens)
	attempt := r.attempt(now)
	d, err := r.acquire(ctx, now, ask, attempt)
	if err != nil {
		r.giveUp(now, ask, attempt)
		return Decision{}, r.failed(ctx, "acquire", err)
	}
	return d, nil
}

func (r *Redis) acquire(ctx context.Context, now time.Time, ask Ask, attempt int64) (Decision, error) {
	beside := r.cfg.Elsewhere.all(now, ask.Limits)
	c, memoLen := r.question(now, ask, beside, attempt)
	reply, err := r.asks.ask(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	return decision(reply, ask, beside, memoLen)
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

// question is the call of redis_acquire.lua. It gives also how long the limits are as bytes.
func (r *Redis) question(now time.Time, ask Ask, beside []Beside, attempt int64) (c call, memoLen int) {
	n := len(ask.Limits)
	c.keys = append(make([]string, 0, 1+2*n), r.record(ask.Admission))
	for i := range ask.Limits {
		c.keys = append(c.keys, r.counter(ask.Limits[i].ID))
	}
	b := make([]byte, 0, 40+160*n)
	b = appendNumbers(b, r.time(now), float64(attempt), float64(ask.Tokens), micros(r.cfg.LeaseTTL), micros(r.slack))
	head := len(b)
	for i := range ask.Limits {
		l := &ask.Limits[i]
		if l.Concurrency > 0 {
			c.keys = append(c.keys, r.leases(l.ID))
		}
		if beside == nil {
			b = appendAllowed(b, l, &Beside{})
		} else {
			b = appendAllowed(b, l, &beside[i])
		}
	}
	allowed := len(b)
	b = appendBeside(appendLimits(b, ask.Limits), beside)
	c.args = []any{b[:head:head], ask.Admission, b[head:allowed:allowed], b[allowed:], r.life}
	return c, len(b) - allowed
}

func (r *Redis) record(admission string) string { return r.prefix + "admission:" + admission }
func (r *Redis) counter(id string) string       { return r.prefix + "counter:" + id }
func (r *Redis) leases(id string) string        { return r.prefix + "leases:" + id }

// time is the scripts' first number.
func (r *Redis) time(now time.Time) float64 {
	if r.givenTime {
		return float64(now.UnixMicro())
	}
	return 0
}

func micros(d time.Duration) float64 { return float64(d.Microseconds()) }

// giveUp frees what an ask without an answer may have taken, or may yet take.
func (r *Redis) giveUp(now time.Time, ask Ask, attempt int64) {
	f := freeing{hold: holdOf(ask, now), at: now, attempt: attempt}
	if err := r.releases.add(f); err != nil {
		r.cfg.Log.Warn("what an ask may have taken is not given back: its lease will expire, its reservation stands", "admission", ask.Admission, "err", err)
	}
}

// Look implements Limiter. By Redis's clock, in one round trip.
func (r *Redis) Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error) {
	keys := make([]string, 0, 2*len(ls))
	for i := range ls {
		keys = append(keys, r.counter(ls[i].ID))
	}
	for i := range ls {
		keys = append(keys, r.leases(ls[i].ID))
	}
	at, facts, err := r.look(ctx, now, keys, ls)
	if err != nil || len(ls) == 0 {
		return nil, err
	}
	c := calendarOf(at)
	setBeside(facts, r.cfg.Elsewhere.all(at, ls))
	return standings(at, &c, facts), nil
}

// look reads the counters of limits, which come first in keys.
func (r *Redis) look(ctx context.Context, now time.Time, keys []string, ls []policy.Limit) (time.Time, []Fact, error) {
	if len(ls) == 0 {
		return now, nil, ctx.Err()
	}
	within, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	reply, err := r.scripts.look.Run(within, r.client, keys, appendNumbers(nil, r.time(now)), len(ls)).Text()
	if err != nil {
		return now, nil, r.failed(ctx, "look", err)
	}
	n := numbers{rest: reply}
	at := n.next()
	facts, err := readFacts(n.rest, ls)
	if n.bad {
		err = errReply
	}
	return time.UnixMicro(at), facts, err
}
