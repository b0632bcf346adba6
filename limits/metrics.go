package limits

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	fallback prometheus.Gauge
	doors    prometheus.Gauge
	errors   *prometheus.CounterVec
	lost     prometheus.Counter
}

// newMetrics registers the metrics; several limiters may share a registerer, and then share them.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		fallback: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_limits_fallback", Help: "1 while this door counts its share of the limits by itself because Redis is away, else 0.",
		}),
		doors: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_limits_doors", Help: "Doors that share the limits, as seen last; each takes its share by it while Redis is away.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_limits_redis_errors_total", Help: "Calls of Redis that failed or timed out, by what they were for.",
		}, []string{"op"}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_limits_releases_lost_total", Help: "Releases that did not reach Redis; their leases expired by themselves.",
		}),
	}
	for _, op := range []string{"acquire", "renew", "release", "announce"} {
		m.errors.WithLabelValues(op)
	}
	if r == nil {
		return m, nil
	}
	var err error
	m.fallback, err = registered(r, m.fallback, err)
	m.doors, err = registered(r, m.doors, err)
	m.errors, err = registered(r, m.errors, err)
	m.lost, err = registered(r, m.lost, err)
	return m, err
}

// registered returns the collector to use: c, or the same one that was registered before. It passes an earlier error on.
func registered[C prometheus.Collector](r prometheus.Registerer, c C, earlier error) (C, error) {
	if earlier != nil {
		return c, earlier
	}
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if same, ok := already.ExistingCollector.(C); ok {
			return same, nil
		}
	}
	return c, err
}
