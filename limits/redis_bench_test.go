package limits_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

// all levels with all kinds, wide enough never to refuse.
func wideLimits() []policy.Limit {
	var ls []policy.Limit
	for level, owner := range []string{"", "sim-large", "research", "alice-laptop"} {
		l := policy.Limit{Level: policy.Level(level), Owner: owner, RequestsPerSecond: 1e6, Burst: 1e6, Concurrency: 1e6,
			TokensPerMinute: 1e12, RequestsPerDay: 1e12, TokensPerDay: 1e12, RequestsPerMonth: 1e12, TokensPerMonth: 1e12}
		l.ID = fmt.Sprintf("%s/%d:%s/0:", l.Level, len(owner), owner)
		ls = append(ls, l)
	}
	return ls
}

// BenchmarkDecideRedis measures one decision with four levels of all kinds against what the simplest limiter there is would
// do: three counters in one pipeline. They take turns, so that both see the same machine. Releases come after each turn; the
// admissions a second have them in.
func BenchmarkDecideRedis(b *testing.B) {
	server := limitstest.StartRedis(b)
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			r := newRedis(b, limits.RedisConfig{URL: "redis://" + server.Addr, Timeout: patient, Waiting: 1 << 20})
			plain := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer plain.Close()
			ls, n := wideLimits(), 0
			holds := make([]limits.Hold, callers*each)
			decide := func(i int) error {
				d, err := r.Acquire(b.Context(), time.Now(), limits.Ask{Admission: fmt.Sprint("bench-", n, "-", i), Limits: ls, Tokens: 1000})
				if err == nil && !d.Admitted {
					err = fmt.Errorf("refused: %s", d)
				}
				holds[i] = d.Hold
				return err
			}
			count := func(int) error {
				p := plain.Pipeline()
				for _, key := range []string{"platform", "team", "key"} {
					p.Incr(b.Context(), key)
					p.Expire(b.Context(), key, time.Minute)
				}
				_, err := p.Exec(b.Context())
				return err
			}
			var ours, theirs []time.Duration
			var busy time.Duration
			for b.Loop() {
				n++
				theirs = append(theirs, times(b, callers, count)...)
				begin := time.Now()
				ours = append(ours, times(b, callers, decide)...)
				for _, h := range holds {
					if err := r.Release(b.Context(), begin, h, limits.Used{Tokens: 400}); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
				busy += time.Since(begin)
			}
			p50 := func(d []time.Duration) float64 {
				slices.Sort(d)
				return float64(d[len(d)/2].Nanoseconds()) / 1e3
			}
			b.ReportMetric(p50(ours), "decide-p50-µs")
			b.ReportMetric(p50(theirs), "incr3-p50-µs")
			b.ReportMetric(float64(len(ours))/busy.Seconds(), "admissions/s")
			b.ReportMetric(p50(ours)/p50(theirs), "ratio")
		})
	}
}

const each = 200 // calls of a caller in a turn

// times runs f that often by so many callers at once, and gives how long each took.
func times(b *testing.B, callers int, f func(int) error) []time.Duration {
	took := make([]time.Duration, callers*each)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c * each; i < (c+1)*each; i++ {
				begin := time.Now()
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return took
}
