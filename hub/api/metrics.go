package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the API. Operations are those of openapi.json.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_hub_api_requests_total", Help: "Requests to the hub's API, by operation and status.",
		}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spokegate_hub_api_seconds", Help: "Time to answer a request to the hub's API.",
			Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30},
		}, []string{"operation"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_hub_api_refused_tokens_total", Help: "Requests to the hub's API with a wrong token.",
		}),
	}
	reg.MustRegister(m.requests, m.seconds, m.refused)
	return m
}

func (m metrics) count(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
