package flight

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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

func newMetrics(r prometheus.Registerer) *metrics {
	with := promauto.With(r)
	return &metrics{
		open: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_flights_open", Help: "Admissions that have not ended and hold their leases and bookings.",
		}),
		ended: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_flight_ended_total", Help: "Usage records written, by outcome.",
		}, []string{"outcome"}),
		anomalies: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_flight_anomalies_total", Help: "Things to look into at the end of flights, by anomaly.",
		}, []string{"anomaly"}),
		genAI: newGenAI(with),
	}
}

func (m *metrics) finished(r *usagev1.Record) {
	m.ended.WithLabelValues(r.Outcome).Inc()
	for _, a := range r.Anomalies {
		m.anomalies.WithLabelValues(a).Inc()
	}
	m.genAI.finished(r)
}
