package extauthz

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spokegate/spokegate/limits"
)

type metrics struct {
	decisions   *prometheus.CounterVec
	seconds     prometheus.Histogram
	credentials *prometheus.CounterVec
	slowed      *prometheus.CounterVec
	limits      *prometheus.CounterVec

	byMac, bySignature prometheus.Counter // contexts that were made
}

func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	contexts := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "spokegate_contexts_total",
		Help: "Contexts of admitted requests for the workers that answer, by how they were made: mac or signature.",
	}, []string{"how"})
	return &metrics{
		byMac: contexts.WithLabelValues("mac"), bySignature: contexts.WithLabelValues("signature"),
		decisions: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_admission_decisions_total",
			Help: "Answers to Envoy by decision: admitted, head (large body may be sent), local (answered by the door), abandoned (Envoy gave up), or the error's code.",
		}, []string{"decision"}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "spokegate_admission_seconds",
			Help:    "Time to decide on one check, pick included.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .25, 1},
		}),
		credentials: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_credentials_refused_total",
			Help: "Requests whose credential was refused, by reason.",
		}, []string{"reason"}),
		slowed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_credentials_slowed_total",
			Help: "Of those, the ones from sources that had sent too many, by answer: held (401 after a second) or refused (429 at once).",
		}, []string{"answer"}),
		limits: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_limit_refusals_total",
			Help: "Requests refused by a limit, by its level and by what it counts.",
		}, []string{"level", "kind"}),
	}
}

func (m *metrics) decided(a answer, took time.Duration) {
	m.decisions.WithLabelValues(a.code()).Inc()
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) limited(binding *limits.Standing) {
	if binding != nil {
		m.limits.WithLabelValues(binding.Limit.Level.String(), binding.Kind.String()).Inc()
	}
}
