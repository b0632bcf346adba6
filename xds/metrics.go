package xds

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	revision prometheus.Gauge
	nacks    prometheus.Counter
	lastAck  prometheus.Gauge
	revoked  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) metrics {
	f := promauto.With(r)
	return metrics{
		revision: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_policy_revision", Help: "Number of the policy revision in force; 0 before the first.",
		}),
		nacks: f.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_policy_nacks_total", Help: "Policy candidates refused.",
		}),
		lastAck: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_policy_last_ack_timestamp_seconds", Help: "When a policy candidate was last accepted, as Unix time; 0 before the first.",
		}),
		revoked: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_policy_revoked_locally", Help: "Keys that this spoke has revoked by itself, over every revision of the policy.",
		}),
	}
}
