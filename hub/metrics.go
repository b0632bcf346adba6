package hub

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a hub; the catalogue is docs/metrics.md.
type metrics struct {
	commits        *prometheus.CounterVec
	seconds        prometheus.Histogram
	databaseErrors prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, h *Hub) *metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_hub_revision", Help: "Number of the latest revision.",
	}, func() float64 { return float64(h.Head().Number) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_hub_keys", Help: "Keys in the latest revision, revoked and expired ones included.",
	}, func() float64 { return float64(h.Snapshot().Keys()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_hub_spokes", Help: "Spokes that are known.",
	}, func() float64 { return float64(len(h.state.Load().spokes)) })
	return &metrics{
		commits: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_hub_commits_total", Help: "Commits, by what became of them.",
		}, []string{"result"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "spokegate_hub_commit_seconds", Help: "Time of a commit: check, transaction and putting it in force.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		databaseErrors: f.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_hub_database_errors_total", Help: "Errors of the database.",
		}),
	}
}

// result is a commit's, as the metric calls it.
func result(err error, r outcome) string {
	var conflict *Conflict
	var bad *Invalid
	var forbidden *Forbidden
	switch {
	case err == nil && r.repeated:
		return "repeated"
	case err == nil && r.unchanged:
		return "unchanged"
	case err == nil:
		return "committed"
	case errors.As(err, &conflict):
		return "conflict"
	case errors.As(err, &bad):
		return "invalid"
	case errors.As(err, &forbidden):
		return "forbidden"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	}
	return "error"
}
