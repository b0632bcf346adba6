package kube

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	pods     *prometheus.GaugeVec
	problems prometheus.Gauge
	known    prometheus.Gauge
	asks     *prometheus.CounterVec
	up       *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	to := promauto.With(r)
	m := &metrics{
		pods: to.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_pool_pods",
			Help: "Pods that the pool's selector matches, by state."}, []string{"state"}),
		problems: to.NewGauge(prometheus.GaugeOpts{Name: "spokegate_pool_problems",
			Help: "Pods that are left out, annotations that are not taken, and workers that cannot join."}),
		known: to.NewGauge(prometheus.GaugeOpts{Name: "spokegate_pool_known",
			Help: "1 while the pool is there and its pods have been listed."}),
		asks: to.NewCounterVec(prometheus.CounterOpts{Name: "spokegate_pool_api_requests_total",
			Help: "Lists and watches that the API server was asked for, by result."}, []string{"resource", "result"}),
		up: to.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_pool_api_up",
			Help: "1 while the API server answers, by what it was asked for last."}, []string{"resource"}),
	}
	for _, state := range States {
		m.pods.WithLabelValues(state)
	}
	for _, resource := range []string{"pool", "pods"} {
		m.up.WithLabelValues(resource)
		m.asks.WithLabelValues(resource, "ok")
		m.asks.WithLabelValues(resource, "failed")
	}
	return m
}

func (m *metrics) asked(resource string, err error) {
	result, up := "ok", 1.0
	if err != nil {
		result, up = "failed", 0
	}
	m.asks.WithLabelValues(resource, result).Inc()
	m.up.WithLabelValues(resource).Set(up)
}

func (m *metrics) found(st Status) {
	for _, state := range States {
		m.pods.WithLabelValues(state).Set(float64(st.Pods[state]))
	}
	m.problems.Set(float64(len(st.Problems)))
	m.known.Set(map[bool]float64{true: 1}[st.Known])
}
