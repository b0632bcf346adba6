package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// counting is a Redis of its own, asked by us and by the simplest limiter there is: three counters in one pipeline.
type counting struct {
	server *process
	ours   *limits.Redis
	plain  *redis.Client
	limits []policy.Limit
	asked  int
}

const asksEach = 300 // of a caller in a round

// decideRedis measures one decision on Redis by four levels of all kinds, by one caller and by sixteen, beside the pipeline;
// and how many requests sixteen callers admit and release in a second.
func decideRedis(ctx context.Context, o options) (all []figure, err error) {
	dir, err := os.MkdirTemp("", "sgredis")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c, err := startCounting(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	for callers, name := range map[int]string{1: "limits.decide_redis", 16: "limits.decide_redis_c16"} {
		var ours, plain, rates []float64
		for range o.rounds {
			theirs, err := p50(callers, func(int) error { return c.pipeline(ctx) })
			if err != nil {
				return nil, err
			}
			took, rate, err := c.round(ctx, callers)
			if err != nil {
				return nil, err
			}
			ours, plain, rates = append(ours, took), append(plain, theirs), append(rates, rate)
		}
		f := compared(name, "µs", fmt.Sprintf("INCR+EXPIRE ×3 in one pipeline, p50, callers: %d", callers), ours, plain)
		progress("%s: %s µs, ratio %s", name, short(f.Value), short(*f.Ratio))
		all = append(all, f)
		if callers > 1 {
			all = append(all, alone("limits.admissions_redis", "admissions/s", "", rates))
		}
	}
	slices.SortFunc(all, func(a, b figure) int { return len(a.Name) - len(b.Name) })
	return all, nil
}

func startCounting(ctx context.Context, dir string) (*counting, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := lis.Addr().String()
	lis.Close()
	_, port, _ := net.SplitHostPort(addr)
	c := &counting{plain: redis.NewClient(&redis.Options{Addr: addr})}
	c.server, err = start(dir, "redis", "redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("%w; run `make redis` first", err)
	}
	c.ours, err = limits.NewRedis(limits.RedisConfig{URL: "redis://" + addr, Spoke: "bench", Door: "bench", Timeout: 5 * time.Second, Waiting: 1 << 20})
	if err != nil {
		c.stop()
		return nil, err
	}
	for i, level := range []policy.Level{policy.Platform, policy.ModelLevel, policy.TeamLevel, policy.KeyLevel} {
		c.limits = append(c.limits, policy.Limit{Level: level, ID: fmt.Sprint("limit-", i), RequestsPerSecond: 1e6, Burst: 1e6, Concurrency: 1e6,
			TokensPerMinute: 1e12, RequestsPerDay: 1e12, TokensPerDay: 1e12, RequestsPerMonth: 1e12, TokensPerMonth: 1e12})
	}
	for begin := time.Now(); c.pipeline(ctx) != nil; time.Sleep(10 * time.Millisecond) {
		if err := errors.Join(c.server.died(), ctx.Err()); err != nil || time.Since(begin) > 20*time.Second {
			c.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
	return c, nil
}

func (c *counting) stop() {
	if c.ours != nil {
		_ = c.ours.Close(context.Background())
	}
	_ = c.plain.Close()
	c.server.stop()
}

func (c *counting) pipeline(ctx context.Context) error {
	p := c.plain.Pipeline()
	for _, key := range []string{"model", "team", "key"} {
		p.Incr(ctx, key)
		p.Expire(ctx, key, time.Minute)
	}
	_, err := p.Exec(ctx)
	return err
}

// round admits, then releases. The time of a decision is without the release, the rate of admissions with it.
func (c *counting) round(ctx context.Context, callers int) (micros, rate float64, err error) {
	holds := make([]limits.Hold, callers*asksEach)
	first := c.asked
	c.asked += len(holds)
	begin := time.Now()
	micros, err = p50(callers, func(i int) error {
		d, err := c.ours.Acquire(ctx, time.Now(), limits.Ask{Admission: fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", first+i), Limits: c.limits, Tokens: 1000})
		if err == nil && !d.Admitted {
			err = fmt.Errorf("refused: %s", d)
		}
		holds[i] = d.Hold
		return err
	})
	for _, h := range holds {
		err = errors.Join(err, c.ours.Release(ctx, begin, h, limits.Used{Tokens: 400}))
	}
	err = errors.Join(err, c.ours.Flush(ctx))
	return micros, float64(len(holds)) / time.Since(begin).Seconds(), err
}

// p50 runs f by so many callers at once, asksEach times each, and gives the median of how long it took, in microseconds.
func p50(callers int, f func(i int) error) (float64, error) {
	took, failed := make([]float64, callers*asksEach), make([]error, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller * asksEach; i < (caller+1)*asksEach && failed[caller] == nil; i++ {
				begin := time.Now()
				failed[caller] = f(i)
				took[i] = float64(time.Since(begin).Nanoseconds()) * inMicros
			}
		})
	}
	wg.Wait()
	return median(took), errors.Join(failed...)
}
