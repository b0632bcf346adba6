package fleet

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsOfWorkers(t *testing.T) {
	f := New()
	leave := mustJoin(t, f, worker(1))
	mustJoin(t, f, worker(2))
	f.Update("w1", Ready)
	f.Acked(now(f))
	f.Report("w1", Status{Running: 3, Degraded: []string{"queue: 9", "queue: 10", "seed"}, Load: &Load{Running: 1, Waiting: 2, CacheUsedPermille: 125, Preemptions: 4}})
	f.Report("gone", Status{Running: 99})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector(f, func() []string { return []string{"large", "empty"} }))
	const help = `
# HELP spokegate_fleet_pickable Workers that are ready and that Envoy has acknowledged.
# TYPE spokegate_fleet_pickable gauge
spokegate_fleet_pickable{endpoint="empty"} 0
spokegate_fleet_pickable{endpoint="large"} 1
# HELP spokegate_fleet_worker_cache_used_ratio Share of the KV blocks of the engine's device in use.
# TYPE spokegate_fleet_worker_cache_used_ratio gauge
spokegate_fleet_worker_cache_used_ratio{endpoint="large",worker="w1"} 0.125
# HELP spokegate_fleet_worker_degraded 1 for each thing that makes a worker worse than it seems.
# TYPE spokegate_fleet_worker_degraded gauge
spokegate_fleet_worker_degraded{cause="queue",endpoint="large",worker="w1"} 1
spokegate_fleet_worker_degraded{cause="seed",endpoint="large",worker="w1"} 1
# HELP spokegate_fleet_worker_preemptions_total Requests of the engine that lost their blocks and began anew.
# TYPE spokegate_fleet_worker_preemptions_total counter
spokegate_fleet_worker_preemptions_total{endpoint="large",worker="w1"} 4
# HELP spokegate_fleet_worker_requests Requests in the shim, and those that its engine computes and lets wait.
# TYPE spokegate_fleet_worker_requests gauge
spokegate_fleet_worker_requests{endpoint="large",kind="computed",worker="w1"} 1
spokegate_fleet_worker_requests{endpoint="large",kind="shim",worker="w1"} 3
spokegate_fleet_worker_requests{endpoint="large",kind="shim",worker="w2"} 0
spokegate_fleet_worker_requests{endpoint="large",kind="waiting",worker="w1"} 2
# HELP spokegate_fleet_workers Workers that have joined this door, by state.
# TYPE spokegate_fleet_workers gauge
spokegate_fleet_workers{endpoint="large",state="ready"} 1
spokegate_fleet_workers{endpoint="large",state="starting"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(help)); err != nil {
		t.Error(err)
	}
	leave()
	if n, err := testutil.GatherAndCount(reg, "spokegate_fleet_worker_requests"); err != nil || n != 1 {
		t.Errorf("%d series of one worker, %v", n, err)
	}
}

// TestAReportMakesNoView: it comes each second from each worker, and Envoy's configuration follows views.
func TestAReportMakesNoView(t *testing.T) {
	f := New()
	mustJoin(t, f, worker(1))
	v, changed := f.View(), f.Changed()
	f.Report("w1", Status{Running: 7})
	select {
	case <-changed:
		t.Error("it woke those that follow")
	default:
	}
	if f.View() != v || v.Workers[0].Status().Running != 7 {
		t.Errorf("view %+v says %+v", f.View(), v.Workers[0].Status())
	}
}
