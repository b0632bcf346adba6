package kube

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// BenchmarkAPodFlaps where the pool has as many pods as given; the first step took them in.
func BenchmarkAPodFlaps(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := New(&Source{Endpoint: "e", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
				Keeper: roster.Keeper{Fleet: fleet.NewUnacknowledged(), Watch: func(context.Context, []scrape.Target) {}}})
			s.watch = func(ctx context.Context, _ podStore) { <-ctx.Done() }
			s.cluster.pool, s.cluster.listed = &pool{selector: "a=b", ports: []int32{8000}}, true
			s.step(b.Context())
			defer s.follow(b.Context(), nil)
			all := map[string]pod{}
			for i := range n {
				name := fmt.Sprintf("p-%d", i)
				all[name] = pod{name: name, ip: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), created: time.Unix(int64(i), 0), ready: true}
			}
			s.cluster.pods.byName = all
			s.step(b.Context())
			for b.Loop() {
				is := all["p-7"]
				is.ready = !is.ready
				all["p-7"] = is
				s.step(b.Context())
			}
		})
	}
}
