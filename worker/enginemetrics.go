package worker

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// engineMetrics are what the shim finds out about its engine.
type engineMetrics struct {
	failures    *prometheus.CounterVec
	probes      *prometheus.CounterVec
	probeTook   prometheus.Histogram
	degradation *prometheus.GaugeVec
	requests    *prometheus.GaugeVec
	cache       prometheus.Gauge
	preempted   prometheus.Gauge
}

func newEngineMetrics(r prometheus.Registerer) *engineMetrics {
	f := promauto.With(r)
	m := &engineMetrics{
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_engine_failures_total", Help: "Runs of the engine that failed, by cause."}, []string{"cause"}),
		probes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_probes_total", Help: "Tokens that the shim asked of its engine by itself, by result."}, []string{"result"}),
		probeTook: f.NewHistogram(prometheus.HistogramOpts{
			Name: "spokegate_worker_probe_seconds", Help: "How long a probe took that was answered.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}),
		degradation: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spokegate_worker_degraded", Help: "1: the worker is worse than it seems, by cause."}, []string{"cause"}),
		requests: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spokegate_worker_engine_requests", Help: "Requests in the engine by its own word: running, waiting."}, []string{"state"}),
		cache: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_worker_engine_cache_used_ratio", Help: "Share of the engine's KV blocks in use, by its own word."}),
		preempted: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_worker_engine_preemptions", Help: "Requests that lost their blocks and began anew since the engine started, by its own word."}),
	}
	for _, cause := range []string{causeStart, causeCrash, causeMemory, causeSilent, causeHung} {
		m.failures.WithLabelValues(cause)
	}
	m.degraded(nil)
	return m
}

func (m *engineMetrics) probe(r probeResult) {
	switch {
	case r.err == nil:
		m.probes.WithLabelValues("answered").Inc()
		m.probeTook.Observe(r.took.Seconds())
	case r.refused:
		m.probes.WithLabelValues("refused").Inc()
	default:
		m.probes.WithLabelValues("failed").Inc()
	}
}

func (m *engineMetrics) degraded(causes []string) {
	now := map[string]float64{}
	for _, c := range causes {
		now[wordOf(c)] = 1
	}
	for _, word := range degradations {
		m.degradation.WithLabelValues(word).Set(now[word])
	}
}

func (m *engineMetrics) counted(c counters) {
	if c.Running != nil {
		m.requests.WithLabelValues("running").Set(float64(*c.Running))
	}
	if c.Waiting != nil {
		m.requests.WithLabelValues("waiting").Set(float64(*c.Waiting))
	}
	if c.Cache != nil {
		m.cache.Set(*c.Cache)
	}
	if c.Preemptions != nil {
		m.preempted.Set(float64(*c.Preemptions))
	}
}

// stateMetric tells the worker's state: 1 for the one that it is in.
type stateMetric struct {
	desc   *prometheus.Desc
	states *states
}

func newStateMetric(s *states) stateMetric {
	return stateMetric{states: s, desc: prometheus.NewDesc("spokegate_worker_state", "1: the worker is in this state.", []string{"state"}, nil)}
}

func (m stateMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

func (m stateMetric) Collect(to chan<- prometheus.Metric) {
	at, _ := m.states.now()
	for state := workerv1.State_STATE_STARTING; state <= workerv1.State_STATE_FAILED; state++ {
		value := 0.0
		if state == at.state {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, nameOf(state))
	}
}

// nameOf a state, as people know it.
func nameOf(s workerv1.State) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}
