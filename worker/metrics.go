package worker

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	running  prometheus.GaugeFunc
}

func newMetrics(r prometheus.Registerer, running func() uint32) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_requests_total", Help: "Requests that the engine was asked, by outcome."}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_refused_total", Help: "Requests that the shim did not serve, by reason."}, []string{"reason"}),
		running: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spokegate_worker_running", Help: "Requests in the shim."}, func() float64 { return float64(running()) }),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.refused, m.running} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
