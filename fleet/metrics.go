package fleet

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	workersDesc = prometheus.NewDesc("spokegate_fleet_workers",
		"Workers that have joined this door, by state.", []string{"endpoint", "state"}, nil)
	pickableDesc = prometheus.NewDesc("spokegate_fleet_pickable",
		"Workers that are ready and that Envoy has acknowledged.", []string{"endpoint"}, nil)
	degradedDesc = prometheus.NewDesc("spokegate_fleet_worker_degraded",
		"1 for each thing that makes a worker worse than it seems.", []string{"endpoint", "worker", "cause"}, nil)
	requestsDesc = prometheus.NewDesc("spokegate_fleet_worker_requests",
		"Requests in the shim, and those that its engine computes and lets wait.", []string{"endpoint", "worker", "kind"}, nil)
	cacheDesc = prometheus.NewDesc("spokegate_fleet_worker_cache_used_ratio",
		"Share of the KV blocks of the engine's device in use.", []string{"endpoint", "worker"}, nil)
	preemptionsDesc = prometheus.NewDesc("spokegate_fleet_worker_preemptions_total",
		"Requests of the engine that lost their blocks and began anew.", []string{"endpoint", "worker"}, nil)
)

// collector shows a fleet as it is when it is asked. A worker's series end when it leaves.
type collector struct {
	fleet     *Fleet
	endpoints func() []string
}

// NewCollector makes metrics of what workers say of themselves. endpoints are those that should have some: 0 workers is told of
// one that has none.
func NewCollector(f *Fleet, endpoints func() []string) prometheus.Collector {
	return collector{f, endpoints}
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{workersDesc, pickableDesc, degradedDesc, requestsDesc, cacheDesc, preemptionsDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	type group struct {
		endpoint string
		state    State
	}
	workers, seen := map[group]int{}, map[string]bool{}
	for _, endpoint := range c.endpoints() {
		seen[endpoint] = true
	}
	for _, w := range c.fleet.View().Workers {
		workers[group{w.Endpoint, w.State}]++
		seen[w.Endpoint] = true
		c.worker(ch, gauge, w)
	}
	for g, n := range workers {
		gauge(workersDesc, float64(n), g.endpoint, g.state.String())
	}
	for endpoint := range seen {
		gauge(pickableDesc, float64(len(c.fleet.Pickable(endpoint))), endpoint)
	}
}

func (c collector) worker(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string), w Worker) {
	st := w.Status()
	gauge(requestsDesc, float64(st.Running), w.Endpoint, w.Name, "shim")
	causes := map[string]bool{}
	for _, d := range st.Degraded {
		cause, _, _ := strings.Cut(d, ":")
		if !causes[cause] { // one series for two details
			causes[cause] = true
			gauge(degradedDesc, 1, w.Endpoint, w.Name, cause)
		}
	}
	if l := st.Load; l != nil {
		gauge(requestsDesc, float64(l.Running), w.Endpoint, w.Name, "computed")
		gauge(requestsDesc, float64(l.Waiting), w.Endpoint, w.Name, "waiting")
		gauge(cacheDesc, float64(l.CacheUsedPermille)/1000, w.Endpoint, w.Name)
		ch <- prometheus.MustNewConstMetric(preemptionsDesc, prometheus.CounterValue, float64(l.Preemptions), w.Endpoint, w.Name)
	}
}
