package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Why a line was put aside.
const (
	asideRefused = "refused" // Kafka will never take it, such as a record that is too large for its topic
	asideDamaged = "damaged" // it is no record, or not the one that was written
)

type shipMetrics struct {
	shipped *prometheus.CounterVec
	aside   *prometheus.CounterVec
	errors  prometheus.Counter
	lag     prometheus.Gauge
	success prometheus.Gauge
}

func newShipMetrics(r prometheus.Registerer) *shipMetrics {
	with := promauto.With(r)
	m := &shipMetrics{
		shipped: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_shipped_total", Help: "Journal records that Kafka has acknowledged, by kind; sent again, counted again.",
		}, []string{"kind"}),
		aside: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_ship_aside_total", Help: "Journal lines put aside because they can never be shipped, by reason. Alert on any growth.",
		}, []string{"reason"}),
		errors: with.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_usage_ship_errors_total", Help: "Failed attempts to ship journal records to Kafka. Each is tried again.",
		}),
		lag: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_usage_spool_lag_bytes", Help: "Bytes of the journal that Kafka has not acknowledged yet. Alert on growth.",
		}),
		success: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_usage_ship_last_success_timestamp_seconds", Help: "When Kafka last acknowledged journal records, in Unix time.",
		}),
	}
	for kind := range routes {
		m.shipped.WithLabelValues(kind)
	}
	m.aside.WithLabelValues(asideRefused) // so that growth is seen from the first one on
	m.aside.WithLabelValues(asideDamaged)
	return m
}
