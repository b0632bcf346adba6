package flight

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
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

	// Of the requests that count in quotas: their tokens, and how many requests nobody could settle. By model.
	reserved, settled, overshoot, unsettled *prometheus.CounterVec
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
		reserved: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_tokens_reserved_total", Help: "Tokens that were reserved in quotas at admission, by model.",
		}, []string{"model"}),
		settled: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_tokens_settled_total", Help: "Tokens that count in quotas in the end, by model.",
		}, []string{"model"}),
		overshoot: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_tokens_overshoot_total", Help: "Tokens that requests used beyond what was reserved for them, by model.",
		}, []string{"model"}),
		unsettled: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_flight_unsettled_total", Help: "Requests whose reservation stands, because nobody said what they used, by model.",
		}, []string{"model"}),
	}
}

func (m *metrics) reserve(model string, h limits.Hold) {
	if len(h.Quotas) > 0 {
		m.reserved.WithLabelValues(model).Add(float64(h.Reserved))
	}
}

func (m *metrics) settle(b *bill, used limits.Used) {
	if len(b.hold.Quotas) == 0 {
		return
	}
	n := used.Tokens
	if n < 0 {
		n = b.hold.Reserved
		m.unsettled.WithLabelValues(b.model).Inc()
	}
	m.settled.WithLabelValues(b.model).Add(float64(n))
	if over := n - b.hold.Reserved; over > 0 {
		m.overshoot.WithLabelValues(b.model).Add(float64(over))
	}
}

func (m *metrics) finished(r *usagev1.Record) {
	m.ended.WithLabelValues(r.Outcome).Inc()
	for _, a := range r.Anomalies {
		m.anomalies.WithLabelValues(a).Inc()
	}
	m.genAI.finished(r)
}
