package push

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	acks, nacks, bytes, unknown prometheus.Counter
	refused                     *prometheus.CounterVec
	seconds                     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, s *Server) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		acks:    counter("spokegate_push_acks_total", "Revisions that doors have put in force."),
		nacks:   counter("spokegate_push_nacks_total", "Revisions that doors have refused, or that could not be sent."),
		bytes:   counter("spokegate_push_bytes_total", "Bytes of policy handed to connections."),
		unknown: counter("spokegate_push_unknown_types_total", "Requests for types that this release does not know."),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_push_refused_total", Help: "Callers that were not let in: identity (certificate, token or name), or full.",
		}, []string{"cause"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "spokegate_push_seconds", Help: "From sending a door a revision to its ACK.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
	}
	for _, cause := range []string{"identity", "full"} {
		m.refused.WithLabelValues(cause)
	}
	if r != nil {
		r.MustRegister(doors{s})
	}
	return m
}

// doors counts doors by how they stand, when it is asked.
type doors struct{ *Server }

var doorsDesc = prometheus.NewDesc("spokegate_push_doors",
	"Doors known since the hub started, by how they stand: current, behind (a revision is on its way), refused (the latest was), ahead (it was, because the door holds a later one), away.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (d doors) Describe(out chan<- *prometheus.Desc) { out <- doorsDesc }

// Collect implements prometheus.Collector.
func (d doors) Collect(out chan<- prometheus.Metric) {
	count := map[string]int{"current": 0, "behind": 0, "refused": 0, "ahead": 0, "away": 0}
	for _, h := range d.Holders() {
		count[h.State()]++
	}
	for state, n := range count {
		out <- prometheus.MustNewConstMetric(doorsDesc, prometheus.GaugeValue, float64(n), state)
	}
}

// Ahead says that the door has refused a revision while it holds a later one, or another of the same number: what the hub knows is
// older than what it has told, as after its database was restored from a copy. Such a door takes nothing until numbers are above
// its own.
func (h *Holder) Ahead() bool { return h.Nack != "" && h.Says >= h.NackRevision }

// State is how a door stands, in a word: current, behind, refused, ahead or away.
func (h *Holder) State() string {
	switch {
	case !h.Connected:
		return "away"
	case h.Ahead():
		return "ahead"
	case h.Nack != "":
		return "refused"
	case h.InFlight != 0 || h.Revision == 0:
		return "behind"
	}
	return "current"
}
