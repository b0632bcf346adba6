package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, running func() uint32) metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_worker_running", Help: "Requests in the shim."}, func() float64 { return float64(running()) })
	return metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_requests_total", Help: "Requests that the engine was asked, by outcome."}, []string{"outcome"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_refused_total", Help: "Requests that the shim did not serve, by reason."}, []string{"reason"}),
	}
}
