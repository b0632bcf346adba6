package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	prefills *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, running func() uint32) metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_worker_running", Help: "Requests in the shim."}, func() float64 { return float64(running()) })
	m := metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_requests_total", Help: "Requests that the engine was asked, by outcome."}, []string{"outcome"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_refused_total", Help: "Requests that the shim did not serve, by reason."}, []string{"reason"}),
		prefills: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_prefills_total", Help: "Requests whose door named a prefiller, by what became of it."}, []string{"outcome"}),
	}
	for _, outcome := range prefillOutcomes {
		m.prefills.WithLabelValues(outcome)
	}
	for _, reason := range []string{contextInvalid, contextUnknownKey, contextExpired, contextAudience, contextReplayed, contextLeg, contextWorker, contextBody, revoked} {
		m.refused.WithLabelValues(reason) // 0 until it happens, so that the first one shows
	}
	return m
}
