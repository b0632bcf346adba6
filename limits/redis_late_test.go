package limits_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

// An ask that timed out is done by Redis all the same, when it goes on. Its place must come free, and asking again counts
// once.
func TestRedisDidItAllTheSame(t *testing.T) {
	server := limitstest.StartRedis(t)
	cfg := limits.RedisConfig{URL: server.URL(), Spoke: "shared", Timeout: patient}
	r := newRedis(t, cfg)
	cfg.Timeout = time.Second
	hasty := newRedis(t, cfg)
	p, q := places("key", 1), rate("team", 0.001, 5)
	quota := policy.Limit{ID: "quota", RequestsPerMonth: 1, TokensPerMonth: 10}
	eventually(t, "a connection is there, so what is asked is sent", func() bool {
		_, err := try(t, hasty, "warm")
		return err == nil
	})
	server.Freeze()
	begin := time.Now()
	if d, err := hasty.Acquire(t.Context(), begin, limits.Ask{Admission: "late", Limits: []policy.Limit{p, q, quota}, Tokens: 10}); err == nil || d.Admitted {
		t.Fatalf("from a frozen Redis: %s, %v", d, err)
	}
	if took := time.Since(begin); took > patient {
		t.Errorf("waited %s", took)
	}
	server.Thaw()
	flush(t, hasty)
	eventually(t, "the place and the quota are free", func() bool {
		d, err := r.Acquire(t.Context(), time.Now(), limits.Ask{Admission: "other", Limits: []policy.Limit{p, quota}, Tokens: 10})
		return err == nil && d.Admitted
	})
	mustAsk(t, r, "late", false, p)
	mustAsk(t, r, "late", false, quota)
}

// A client that leaves while Redis is asked is no error of Redis's; what was asked is given up all the same.
func TestRedisClientLeaves(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
	p := places("key", 1)
	mustAsk(t, r, "warm", true)
	server.Freeze()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if d, err := r.Acquire(ctx, time.Now(), limits.Ask{Admission: "leaves", Limits: []policy.Limit{p}}); err == nil || d.Admitted {
		t.Errorf("%s, %v", d, err)
	}
	if lost, err := r.Renew(ctx, time.Now(), []limits.Hold{{Admission: "leaves"}}); err == nil {
		t.Errorf("renewed all but %v", lost)
	}
	server.Thaw()
	flush(t, r)
	mustAsk(t, r, "other", true, p)
	for _, op := range []string{"acquire", "renew"} {
		if n := r.Errors(op); n != 0 {
			t.Errorf("%v errors of %s", n, op)
		}
	}
}

func TestRedisAskedAgainAfterGivingUp(t *testing.T) {
	server := limitstest.StartRedis(t)
	p := places("key", 3)
	p.TokensPerMonth = 100
	for _, c := range []struct {
		name   string
		order  string // of: 1 first ask arrives, 2 second ask arrives, g the giving up of the first
		leases int64  // that are held afterwards
	}{
		{"in order", "1g2", 1},
		{"given up before it comes", "g1", 0},
		{"the second in between", "12g", 1},
		{"the first comes last", "g21", 1},
		{"the first comes after the second, then is given up", "21g", 1},
		{"given up twice", "1gg", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
			ask := limits.Ask{Admission: "one", Limits: []policy.Limit{p}, Tokens: 40}
			first, second := r.Attempt(), r.Attempt()
			for _, step := range c.order {
				switch step {
				case '1':
					_, _ = r.AcquireAs(t.Context(), ask, first)
				case '2':
					if d, err := r.AcquireAs(t.Context(), ask, second); err != nil || !d.Admitted {
						t.Errorf("second ask: %s, %v", d, err)
					}
				case 'g':
					r.GiveUp(ask, first)
					flush(t, r)
				}
			}
			if n := r.Leases(t.Context(), "key"); n != c.leases {
				t.Errorf("%d leases held, want %d", n, c.leases)
			}
			all, err := r.Look(t.Context(), time.Now(), ask.Limits)
			if err != nil || len(all) != 2 || all[0].Used != c.leases || all[1].Used != 40*c.leases {
				t.Errorf("stands at %v, %v", all, err)
			}
		})
	}
}

func TestRedisCallerLeaves(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
	mustAsk(t, r, "warm", true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	server.Freeze()
	_, err := r.Acquire(ctx, time.Now(), limits.Ask{Admission: "left", Limits: []policy.Limit{places("key", 1)}})
	server.Thaw()
	if err == nil {
		t.Fatal("answered by a frozen Redis")
	}
	flush(t, r)
	mustAsk(t, r, "next", true, places("key", 1))
}

// A release takes no time, whatever Redis does, and arrives when it can.
func TestRedisReleasesInTheBackground(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient, Waiting: 50})
	var holds []limits.Hold
	for i := range 50 {
		holds = append(holds, mustAsk(t, r, fmt.Sprint("r", i), true, places("key", 50)).Hold)
	}
	server.Freeze()
	begin := time.Now()
	for _, h := range holds {
		if err := r.Release(t.Context(), time.Now(), h, limits.Used{}); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begin); took > patient/2 {
		t.Errorf("50 releases took %s", took)
	}
	if err := r.Release(t.Context(), time.Now(), limits.Hold{Admission: "one too many"}, limits.Used{}); err == nil {
		t.Error("the queue has no bound")
	}
	server.Thaw()
	flush(t, r)
	if n := r.Leases(t.Context(), "key"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestRedisCloseDrains(t *testing.T) {
	server := limitstest.StartRedis(t)
	r, err := limits.NewRedis(limits.RedisConfig{URL: server.URL(), Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		d := mustAsk(t, r, fmt.Sprint("r", i), true, places("key", 500))
		if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{}); err != nil {
			t.Error(err)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Release(t.Context(), time.Now(), limits.Hold{Admission: "late"}, limits.Used{}); err == nil {
		t.Error("released after Close")
	}
	again := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient, Spoke: ""})
	if n := again.Client().ZCard(t.Context(), "{spokegate:}:leases:key").Val(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestRedisCloseWithRedisAway(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
	d := mustAsk(t, r, "a", true, places("key", 1))
	server.Kill()
	if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{}); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	if err := r.Close(t.Context()); err == nil {
		t.Error("closed as if all had been released")
	}
	if took := time.Since(begin); took > patient {
		t.Errorf("Close took %s", took)
	}
}
