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
)

// Asks that meet go together. Whoever leaves meanwhile, also who was to bring them, takes nothing, and the others are answered.
func TestRedisAsksTogether(t *testing.T) {
	server := limitstest.StartRedis(t)
	for _, leaving := range []int{0, 1, 7, 150} {
		t.Run(fmt.Sprint(leaving, " leave"), func(t *testing.T) {
			r := newRedis(t, limits.RedisConfig{URL: server.URL(), Timeout: patient})
			mustAsk(t, r, "warm", true)
			if err := r.Client().ScriptFlush(t.Context()).Err(); err != nil { // then the whole batch has to be brought again
				t.Fatal(err)
			}
			server.Freeze()
			thaw := sync.OnceFunc(server.Thaw)
			defer thaw()
			var admitted atomic.Int64
			var stay, leave sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ask := func(ctx context.Context, i int) error {
				d, err := r.Acquire(ctx, time.Now(), limits.Ask{Admission: fmt.Sprint("r", i), Limits: []policy.Limit{places("key", 100)}})
				if d.Admitted {
					admitted.Add(1)
				}
				return err
			}
			one := func(g *sync.WaitGroup, ctx context.Context, i int, fails bool) {
				g.Go(func() {
					if err := ask(ctx, i); (err != nil) != fails {
						t.Errorf("ask %d: %v", i, err)
					}
				})
				eventually(t, "the ask waits, or is the first", func() bool {
					waiting, busy := r.Asks()
					return busy && waiting == i
				})
			}
			one(&stay, t.Context(), 0, false) // on its way
			for i := 1; i <= leaving; i++ {
				one(&leave, ctx, i, true)
			}
			for i := range 200 {
				one(&stay, t.Context(), 1+leaving+i, false)
			}
			cancel()
			leave.Wait()
			thaw()
			stay.Wait()
			flush(t, r)
			if n := admitted.Load(); n != 100 || r.Leases(t.Context(), "key") != 100 {
				t.Errorf("%d admitted to 100 places, %d leases", n, r.Leases(t.Context(), "key"))
			}
		})
	}
}
