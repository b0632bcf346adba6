package flight

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Anomalies that only the metric knows: they come too late for a record, or are none of its business.
const (
	late      = "late"       // facts after the usage record
	leaseLost = "lease_lost" // a lease expired, the request runs on uncounted
)

type metrics struct {
	open      prometheus.Gauge
	ended     *prometheus.CounterVec
	anomalies *prometheus.CounterVec
	genAI     *genAI
}

// newMetrics registers the metrics; several tables may share a registerer, their numbers add up.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_flights_open", Help: "Admissions that have not ended and hold their leases and bookings.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_flight_ended_total", Help: "Usage records written, by outcome.",
		}, []string{"outcome"}),
		anomalies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_flight_anomalies_total", Help: "Things to look into at the end of flights, by anomaly.",
		}, []string{"anomaly"}),
		genAI: newGenAI(),
	}
	if r == nil {
		return m, nil
	}
	var err error
	m.open, err = registered(r, m.open, err)
	m.ended, err = registered(r, m.ended, err)
	m.anomalies, err = registered(r, m.anomalies, err)
	return m, m.genAI.register(r, err)
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

func (m *metrics) finished(r *usagev1.Record) {
	m.ended.WithLabelValues(r.Outcome).Inc()
	for _, a := range r.Anomalies {
		m.anomalies.WithLabelValues(a).Inc()
	}
	m.genAI.finished(r)
}
