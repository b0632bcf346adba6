package jwks

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	reads   *prometheus.CounterVec
	keys    *prometheus.GaugeVec
	success *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		reads: f.NewCounterVec(prometheus.CounterOpts{Name: "spokegate_issuer_reads_total",
			Help: "Attempts to read an issuer's keys: read, unchanged or failed."}, []string{"issuer", "result"}),
		keys: f.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_issuer_keys",
			Help: "Keys of an issuer that tokens can be verified with."}, []string{"issuer"}),
		success: f.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_issuer_last_success_timestamp_seconds",
			Help: "When an issuer's keys were read last, or found unchanged."}, []string{"issuer"}),
	}
}

// forget takes away the series of an issuer that is not trusted any more.
func (m *metrics) forget(issuer string) {
	m.reads.DeletePartialMatch(prometheus.Labels{"issuer": issuer})
	m.keys.DeleteLabelValues(issuer)
	m.success.DeleteLabelValues(issuer)
}
