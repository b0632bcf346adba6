package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Why a record was lost.
const (
	lostQueueFull = "queue_full" // the disk is slower than the records come, or fails for long
	lostSpoolFull = "spool_full" // Options.MaxBytes is reached
	lostTooLarge  = "too_large"  // longer than MaxLine
	lostDisk      = "disk"       // the disk still failed when the spool was closed
	lostClosed    = "closed"     // appended after Close
)

type metrics struct {
	records *prometheus.CounterVec
	lost    *prometheus.CounterVec
	bytes   prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	with := promauto.With(r)
	m := &metrics{
		records: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_records_total", Help: "Journal records that are on disk, by kind.",
		}, []string{"kind"}),
		lost: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_lost_total", Help: "Journal records that could not be kept, by reason. Alert on any growth.",
		}, []string{"reason"}),
		bytes: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_usage_spool_bytes", Help: "Bytes of the journal's segments on disk.",
		}),
	}
	for _, reason := range []string{lostQueueFull, lostSpoolFull, lostTooLarge, lostDisk, lostClosed} {
		m.lost.WithLabelValues(reason) // so that growth is seen from the first one on
	}
	return m
}
