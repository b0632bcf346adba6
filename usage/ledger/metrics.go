package ledger

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spokegate/spokegate/usage"
)

// metrics of a ledger; the catalogue is docs/metrics.md.
type metrics struct {
	records   *prometheus.CounterVec
	commits   prometheus.Histogram
	failures  prometheus.Counter
	forgotten prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		records: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_ledger_records_total", Help: "Records that were read, by what became of them.",
		}, []string{"kind", "result"}),
		commits: f.NewHistogram(prometheus.HistogramOpts{
			Name: "spokegate_ledger_commit_seconds", Help: "Time of a transaction.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		failures: f.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_ledger_commit_failures_total", Help: "Transactions that failed; each is tried again.",
		}),
		forgotten: f.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_ledger_forgotten_total", Help: "Admissions that were forgotten because of their age.",
		}),
	}
}

// watch adds what is looked up when somebody asks.
func (m *metrics) watch(reg prometheus.Registerer, l *Ledger) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_ledger_pending", Help: "What was there to read and is not delivered: records of Kafka, bytes of spools.",
	}, func() float64 { return float64(l.cfg.Feed.Status().Pending) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "spokegate_ledger_skipped_total", Help: "Records that were removed before they could be read.",
	}, func() float64 { return float64(l.cfg.Feed.Status().Skipped) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_ledger_last_success_timestamp_seconds", Help: "When the database could last be written.",
	}, func() float64 {
		if at := l.health.status().Committed; !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	})
}

// kinds that have a label of their own; a record is not ours alone to write.
var kinds = map[string]bool{
	usage.KindAdmitted: true, usage.KindServed: true, usage.KindUsage: true, usage.KindBalance: true, usage.KindCheckpoint: true,
	usage.KindProbe: true, usage.KindEngine: true,
}

func (m *metrics) counted(tally map[tallyKey]int) {
	for k, n := range tally {
		if !kinds[k.kind] {
			k.kind = "other"
		}
		m.records.WithLabelValues(k.kind, string(k.result)).Add(float64(n))
	}
}
