package usage

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
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

// newMetrics registers the metrics; several spools may share a registerer, their numbers add up.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_records_total", Help: "Journal records that are on disk, by kind.",
		}, []string{"kind"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_usage_lost_total", Help: "Journal records that could not be kept, by reason. Alert on any growth.",
		}, []string{"reason"}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_usage_spool_bytes", Help: "Bytes of the journal's segments on disk.",
		}),
	}
	for _, reason := range []string{lostQueueFull, lostSpoolFull, lostTooLarge, lostDisk, lostClosed} {
		m.lost.WithLabelValues(reason) // so that growth is seen from the first one on
	}
	if r == nil {
		return m, nil
	}
	var err error
	m.records, err = registered(r, m.records, err)
	m.lost, err = registered(r, m.lost, err)
	m.bytes, err = registered(r, m.bytes, err)
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
