package limits_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
	"go.uber.org/goleak"
)

var spokes atomic.Int64

// newRedis makes a limiter with counters of its own on a Redis.
func newRedis(t testing.TB, cfg limits.RedisConfig) *limits.Redis {
	t.Helper()
	if cfg.Spoke == "" {
		cfg.Spoke = fmt.Sprint("test-", spokes.Add(1))
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = unending
	}
	r, err := limits.NewRedis(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// patient is long enough for a machine that is busy with other tests, and unending a lease that such a machine cannot outlive.
const (
	patient  = time.Minute
	unending = time.Hour
)

// waiting releases before it returns, as the suite needs it.
type waiting struct{ *limits.Redis }

func (w waiting) Release(ctx context.Context, now time.Time, h limits.Hold, used limits.Used) error {
	if err := w.Redis.Release(ctx, now, h, used); err != nil {
		return err
	}
	return w.Flush(ctx)
}

func TestRedis(t *testing.T) {
	server := limitstest.StartRedis(t)
	limitstest.Run(t, time.Microsecond, func(t *testing.T, ttl time.Duration) limits.Limiter {
		r := newRedis(t, limits.RedisConfig{URL: server.URL(), LeaseTTL: ttl, Timeout: patient})
		r.GoByNow()
		return waiting{r}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually waits for a fact.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func try(t testing.TB, l limits.Limiter, admission string, ls ...policy.Limit) (limits.Decision, error) {
	t.Helper()
	return l.Acquire(t.Context(), time.Now(), limits.Ask{Admission: admission, Limits: ls})
}

func mustAsk(t testing.TB, l limits.Limiter, admission string, admitted bool, ls ...policy.Limit) limits.Decision {
	t.Helper()
	d, err := try(t, l, admission, ls...)
	if err != nil || d.Admitted != admitted {
		t.Fatalf("%s: want admitted %v, got %s, %v", admission, admitted, d, err)
	}
	return d
}

func places(id string, n int) policy.Limit {
	return policy.Limit{Level: policy.KeyLevel, Owner: id, ID: id, Concurrency: n}
}

func rate(id string, perSecond float64, burst int) policy.Limit {
	return policy.Limit{Level: policy.TeamLevel, Owner: id, ID: id, RequestsPerSecond: perSecond, Burst: burst}
}

func flush(t testing.TB, r *limits.Redis) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Two doors, 200 requests at once, ten places, Redis's own clock.
func TestRedisDoorsShare(t *testing.T) {
	server := limitstest.StartRedis(t)
	cfg := limits.RedisConfig{URL: server.URL(), Spoke: "shared", Timeout: patient}
	doors := []*limits.Redis{newRedis(t, cfg), newRedis(t, cfg)}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			d, err := try(t, doors[i%2], fmt.Sprint("r", i), rate("team", 0.001, 20), places("key", 10))
			if err != nil {
				t.Error(err)
			}
			if d.Admitted {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 10 {
		t.Errorf("%d admitted to 10 places", admitted.Load())
	}
	other := newRedis(t, limits.RedisConfig{URL: server.URL(), Spoke: "another", Timeout: patient})
	mustAsk(t, other, "r1", true, places("key", 1))
}

func TestRedisForgetsWhatIsIdle(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), LeaseTTL: 50 * time.Millisecond, Timeout: patient})
	for i := range 20 {
		d := mustAsk(t, r, fmt.Sprint("r", i), true, rate(fmt.Sprint("team", i), 1000, 5), places(fmt.Sprint("key", i), 1))
		if i%2 == 0 { // the others' door dies
			if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "a place comes back by itself", func() bool {
		d, err := try(t, r, "waits", places("key1", 1))
		return err == nil && d.Admitted
	})
	eventually(t, "no keys are left", func() bool { return r.Client().DBSize(t.Context()).Val() == 0 })
}

func TestRedisLosesItsScripts(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
	p := places("key", 1)
	for i := range 3 {
		if err := r.Client().ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		d := mustAsk(t, r, fmt.Sprint("r", i), true, p)
		if err := r.Client().ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if !renewed(t, r, time.Now(), d.Hold) {
			t.Error("not renewed")
		}
		if err := r.Client().ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{}); err != nil {
			t.Fatal(err)
		}
		flush(t, r)
	}
}

// renewed says whether a hold's leases were kept.
func renewed(t *testing.T, l limits.Limiter, now time.Time, h limits.Hold) bool {
	t.Helper()
	lost, err := l.Renew(t.Context(), now, []limits.Hold{h})
	if err != nil {
		t.Errorf("renew: %v", err)
	}
	return len(lost) == 0
}

func TestRedisRestartedEmpty(t *testing.T) {
	server := limitstest.StartRedis(t)
	cfg := limits.RedisConfig{URL: server.URL(), Spoke: "shared", Timeout: patient}
	r, other := newRedis(t, cfg), newRedis(t, cfg)
	announce := func(r *limits.Redis) string {
		if err := r.Announce(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		return r.Memory()
	}
	p := places("key", 2)
	p.RequestsPerMonth, p.TokensPerMonth = 3, 1000
	d := mustAsk(t, r, "before", true, p, rate("team", 0.001, 1))
	memory := announce(r)
	if memory == "" || announce(other) != memory || announce(r) != memory {
		t.Errorf("one memory has the names %q, %q and %q", memory, other.Memory(), r.Memory())
	}
	server.Restart()
	eventually(t, "another memory is noticed", func() bool {
		_ = r.Announce(t.Context(), time.Now())
		return r.Memory() != memory
	})
	if announce(other) != r.Memory() {
		t.Errorf("one memory has the names %q and %q", r.Memory(), other.Memory())
	}
	if renewed(t, r, time.Now(), d.Hold) {
		t.Error("renewed what Redis has forgotten")
	}
	for range 3 {
		if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{Unserved: true}); err != nil {
			t.Error(err)
		}
	}
	flush(t, r)
	mustAsk(t, r, "a", true, p)
	mustAsk(t, r, "b", true, p)
	mustAsk(t, r, "c", false, p)
	all, err := r.Look(t.Context(), time.Now(), []policy.Limit{p})
	if err != nil || len(all) != 3 || all[0].Used != 2 || all[1].Used != 2 || all[2].Used != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// What was admitted before Redis lost its memory is settled once it has been put back; quotas count nothing anew by that.
func TestRedisRestoresWhatIsToBeSettled(t *testing.T) {
	server := limitstest.StartRedis(t)
	r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
	p := policy.Limit{ID: "key", Concurrency: 5, TokensPerMonth: 1000}
	d, err := r.Acquire(t.Context(), time.Now(), limits.Ask{Admission: "runs", Limits: []policy.Limit{p}, Tokens: 100})
	if err != nil || !d.Admitted {
		t.Fatalf("%s, %v", d, err)
	}
	totals, err := r.Totals(t.Context(), time.Now(), []string{"key", "unknown"})
	if err != nil || len(totals) != 4 {
		t.Fatalf("%v, %v", totals, err)
	}
	server.Restart()
	eventually(t, "totals are put back", func() bool { return r.Raise(t.Context(), time.Now(), totals) == nil })
	for range 2 {
		if released, err := r.Restore(t.Context(), time.Now(), []limits.Hold{d.Hold}); err != nil || len(released) > 0 {
			t.Errorf("%v, %v", released, err)
		}
	}
	used := func() (places, tokens int64) {
		all, err := r.Look(t.Context(), time.Now(), []policy.Limit{p})
		if err != nil || len(all) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0].Used, all[1].Used
	}
	if places, tokens := used(); places != 1 || tokens != 100 {
		t.Errorf("%d places and %d tokens are used, want 1 and 100", places, tokens)
	}
	again, err := r.Acquire(t.Context(), time.Now(), limits.Ask{Admission: "runs", Limits: []policy.Limit{p}, Tokens: 7})
	if err != nil || !again.Admitted || again.Hold.Reserved != 100 || !again.Hold.At.Equal(d.Hold.At) {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	for range 2 {
		if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{Tokens: 30}); err != nil {
			t.Error(err)
		}
	}
	flush(t, r)
	if places, tokens := used(); places != 0 || tokens != 30 {
		t.Errorf("%d places and %d tokens are used, want 0 and 30", places, tokens)
	}
}
