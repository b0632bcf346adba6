package extauthz

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	decisions *prometheus.CounterVec
	seconds   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	return &metrics{
		decisions: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_admission_decisions_total",
			Help: "Answers to Envoy by decision: admitted, head (large body may be sent), local (answered by the door), abandoned (Envoy gave up), or the error's code.",
		}, []string{"decision"}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "spokegate_admission_seconds",
			Help:    "Time to decide on one check, pick included.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1},
		}),
	}
}

func (m *metrics) decided(a answer, took time.Duration) {
	m.decisions.WithLabelValues(a.code()).Inc()
	m.seconds.Observe(took.Seconds())
}
