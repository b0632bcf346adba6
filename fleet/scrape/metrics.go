package scrape

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ requests *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "spokegate_scrape_requests_total",
		Help: "What workers without a shim were asked, health or metrics, by result: ok, failed, or none (the engine has no metrics).",
	}, []string{"kind", "result"})}
	for _, kind := range []string{"health", "metrics"} {
		m.requests.WithLabelValues(kind, "ok")
		m.requests.WithLabelValues(kind, "failed")
	}
	return m
}

func (m *metrics) asked(kind, result string) { m.requests.WithLabelValues(kind, result).Inc() }
