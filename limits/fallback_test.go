package limits_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

func TestFallbackPassesTheSuite(t *testing.T) {
	server := limitstest.StartRedis(t)
	over := func(t *testing.T, ttl time.Duration, url string, primary func(*limits.Redis) limits.Primary) limits.Limiter {
		r := newRedis(t, limits.RedisConfig{URL: url, LeaseTTL: ttl, Timeout: patient})
		r.GoByNow()
		f, err := limits.NewFallback(primary(r), limits.NewMemory(limits.MemoryConfig{LeaseTTL: ttl}), limits.FallbackConfig{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close(context.Background()) })
		return f
	}
	t.Run("on Redis", func(t *testing.T) {
		limitstest.Run(t, time.Microsecond, func(t *testing.T, ttl time.Duration) limits.Limiter {
			return over(t, ttl, server.URL(), func(r *limits.Redis) limits.Primary { return waiting{r} })
		})
	})
	t.Run("by itself", func(t *testing.T) {
		limitstest.Run(t, time.Nanosecond, func(t *testing.T, ttl time.Duration) limits.Limiter {
			return over(t, ttl, "unix:///nowhere/redis.sock", func(r *limits.Redis) limits.Primary { return r })
		})
	})
}

func TestFallbackKeepsToItsShare(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	if a.Away() || a.Status() != "shared store, 2 doors" {
		t.Error(a.Status())
	}
	server.Kill()
	for _, d := range []*door{a, b} {
		admitted := map[string]int{}
		for i := range 30 {
			for _, l := range []policy.Limit{places("key", 9), rate("team", 0.001, 11), places("one", 1)} {
				got, err := try(t, d, fmt.Sprint(d.Status()[:4], l.ID, i, d == a), l)
				if err != nil {
					t.Fatal(err)
				}
				if got.Admitted {
					admitted[l.ID]++
				}
			}
		}
		if admitted["key"] != 4 || admitted["team"] != 5 || admitted["one"] != 1 {
			t.Errorf("admitted %v, want half of 9 places, half of 11 at once, and at least one", admitted)
		}
	}
	if n := a.gauge(t, "spokegate_limits_fallback"); n != 1 {
		t.Errorf("spokegate_limits_fallback is %v", n)
	}
	if n := a.gauge(t, "spokegate_limits_redis_errors_total"); n < 1 {
		t.Errorf("spokegate_limits_redis_errors_total is %v", n)
	}
	if n := strings.Count(a.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines say that Redis is away:\n%s", n, a.log)
	}
	if s := a.Status(); !strings.Contains(s, "share is 1/2") || strings.Contains(s, "\n") {
		t.Error(s)
	}
	server.Restart()
	a.returns(t)
	if n := a.gauge(t, "spokegate_limits_fallback"); n != 0 {
		t.Errorf("spokegate_limits_fallback is %v", n)
	}
	if problems, err := testutil.GatherAndLint(a.metrics); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// What the door holds in Redis counts in its share, and a used-up rate is not full again.
func TestFallbackKnowsWhatItAdmittedBefore(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, _ := pair(t, server.URL())
	p, q := places("key", 6), rate("team", 0.001, 6)
	var holds []limits.Hold
	for i := range 4 {
		holds = append(holds, mustAsk(t, a, fmt.Sprint("r", i), true, p, q).Hold)
	}
	server.Kill()
	mustAsk(t, a, "more", false, p) // it has 4, its share is 3
	mustAsk(t, a, "fast", false, q)
	again := mustAsk(t, a, "r0", true, p, q)
	if again.Binding().Max != 6 {
		t.Errorf("the first answer was another: %s", again)
	}
	for _, h := range holds[:2] {
		a.release(t, h)
	}
	mustAsk(t, a, "one place is free", true, p)
	mustAsk(t, a, "two are not", false, p)
}

func TestFallbackReturnsWithoutCountingTwice(t *testing.T) {
	t.Parallel()
	server := limitstest.StartRedis(t)
	a, _ := pairWith(t, server.URL(), timeout)
	p := places("key", 4)
	shared := mustAsk(t, a, "shared", true, p)
	server.Freeze()
	local := mustAsk(t, a, "local", true, p)
	if !a.Away() {
		t.Fatal(a.Status())
	}
	a.release(t, shared.Hold) // cannot reach Redis now
	if !renewed(t, a, time.Now(), local.Hold) {
		t.Error("not renewed in memory")
	}
	server.Thaw()
	a.returns(t)
	flush(t, a.redis)
	if n := a.redis.Leases(t.Context(), "key"); n != 0 {
		t.Errorf("Redis holds %d leases: released or not of its own", n)
	}
	again := mustAsk(t, a, "local", true, p)
	if again.String() != local.String() || a.redis.Leases(t.Context(), "key") != 0 {
		t.Errorf("asked again after the return: %s, and %d leases in Redis", again, a.redis.Leases(t.Context(), "key"))
	}
	if n := a.InFlight()["key"]; n != 1 {
		t.Errorf("%d in flight, want the local one", n)
	}
	if !renewed(t, a, time.Now(), local.Hold) {
		t.Error("not renewed in memory after the return")
	}
	a.release(t, local.Hold)
	a.release(t, local.Hold)
	if n := a.InFlight()["key"]; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// One request waits for a Redis that hangs, for the timeout; the others do not ask it.
func TestFallbackDoesNotWait(t *testing.T) {
	t.Parallel()
	server := limitstest.StartRedis(t)
	proxy := limitstest.SlowRedis(t, server)
	for name, fault := range map[string]struct{ hang, heal func() }{
		"frozen": {server.Freeze, server.Thaw},
		"slow":   {func() { proxy.Delay(3 * timeout) }, func() { proxy.Delay(0) }},
		"killed": {server.Kill, server.Restart},
	} {
		t.Run(name, func(t *testing.T) {
			d := doorWith(t, proxy.URL(), name, timeout)
			mustAsk(t, d, name+"first", true)
			fault.hang()
			for i := range 500 {
				mustAsk(t, d, fmt.Sprint(name, i), true, rate("wide", 1e6, 1e6))
			}
			if n := d.redis.Errors("acquire"); n > 1 {
				t.Errorf("%v of 500 asked Redis in vain", n)
			}
			if !d.Away() {
				t.Error(d.Status())
			}
			fault.heal()
			d.returns(t)
			mustAsk(t, d, name+"last", true, places(name, 1))
			if d.Away() {
				t.Error(d.Status())
			}
		})
	}
}

// A Redis that was restarted empty has lost the leases of requests that run. Their next renewal puts them back.
func TestFallbackRestores(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	p := places("key", 1)
	d := mustAsk(t, a, "stream", true, p)
	over := mustAsk(t, a, "over", true, places("other", 1))
	server.Restart()
	a.returns(t)
	b.returns(t)
	a.release(t, over.Hold)
	flush(t, a.redis)
	eventually(t, "the lease is back", func() bool {
		if !renewed(t, a, time.Now(), d.Hold) {
			t.Fatal("not renewed")
		}
		return a.redis.Leases(t.Context(), "key") == 1
	})
	b.returns(t)
	mustAsk(t, b, "has no place", false, p)
	if renewed(t, a, time.Now(), over.Hold) {
		t.Error("renewed what was released")
	}
	if n := a.redis.Leases(t.Context(), "other"); n != 0 {
		t.Errorf("%d leases of what was released", n)
	}
	a.release(t, d.Hold)
	flush(t, a.redis)
	mustAsk(t, b, "has one now", true, p)
}

func TestFallbackStartsWithoutRedis(t *testing.T) {
	server := limitstest.StartRedis(t)
	server.Kill()
	d := newDoor(t, server.URL(), "early")
	mustAsk(t, d, "a", true, places("key", 1))
	mustAsk(t, d, "b", false, places("key", 1))
	server.Restart()
	d.returns(t)
	if d.redis.Doors() != 1 {
		t.Errorf("%d doors", d.redis.Doors())
	}
}

// A door that leaves does not keep a share for as long as its announcement would hold.
func TestFallbackDoorsLeave(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the highest of the last counts holds
		if err := a.redis.Announce(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.redis.Doors(); n != 1 {
		t.Errorf("%d doors", n)
	}
}

// Many requests live on while Redis comes and goes. Nothing may stay held.
func TestFallbackUnderTraffic(t *testing.T) {
	t.Parallel()
	server := limitstest.StartRedis(t)
	a, b := pairWith(t, server.URL(), timeout)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			d := []*door{a, b}[g%2]
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				got, err := try(t, d, fmt.Sprint(g, "/", i), places("key", 6), rate("team", 1e5, 100))
				if err != nil {
					t.Error(err)
				}
				if got.Admitted {
					_, _ = d.Renew(t.Context(), time.Now(), []limits.Hold{got.Hold})
					d.release(t, got.Hold)
				}
			}
		})
	}
	for _, fault := range []struct {
		do   func()
		away bool
	}{{server.Freeze, true}, {server.Thaw, false}, {server.Kill, true}, {server.Restart, false}, {server.Restart, false}} {
		fault.do()
		eventually(t, "the doors notice", func() bool { return a.Away() == fault.away && b.Away() == fault.away })
		a.passes(t)
	}
	close(stop)
	wg.Wait()
	a.returns(t)
	b.returns(t)
	flush(t, a.redis)
	flush(t, b.redis)
	if n := a.redis.Leases(t.Context(), "key"); n != 0 || len(a.InFlight())+len(b.InFlight()) != 0 {
		t.Errorf("%d leases left in Redis, %v and %v at the doors", n, a.InFlight(), b.InFlight())
	}
}
