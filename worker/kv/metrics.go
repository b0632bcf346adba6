package kv

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	events   *prometheus.CounterVec
	skipped  *prometheus.CounterVec
	replays  *prometheus.CounterVec
	lag      *prometheus.GaugeVec
	gaps     prometheus.Counter
	lost     prometheus.Counter
	restarts prometheus.Counter

	kinds   [Cleared + 1]prometheus.Counter
	reasons [skips]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		events: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_kv_events_total", Help: "Events of the engine's cache, by kind."}, []string{"kind"}),
		skipped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_kv_skipped_total", Help: "Blocks, events and payloads that are not announced, by reason."}, []string{"reason"}),
		replays: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_worker_kv_replays_total", Help: "Questions to the engine for past events, by result."}, []string{"result"}),
		lag: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spokegate_worker_kv_lag_seconds", Help: "Age of the last events when they were taken, by data-parallel rank."}, []string{"rank"}),
		gaps:     counter("spokegate_worker_kv_gaps_total", "Holes in the sequence of events."),
		lost:     counter("spokegate_worker_kv_lost_total", "Holes that no replay filled: the rank's blocks were forgotten."),
		restarts: counter("spokegate_worker_kv_restarts_total", "Restarts of the engine that its events showed."),
	}
	for k := range m.kinds {
		m.kinds[k] = m.events.WithLabelValues(Kind(k).String())
	}
	for s := range m.reasons {
		m.reasons[s] = m.skipped.WithLabelValues(skipped(s).String())
	}
	return m
}

func (m *metrics) note(s skipped, n int) { m.reasons[s].Add(float64(n)) }

func (m *metrics) batch(rank uint32, b *Batch, now time.Time) {
	for i := range b.Events {
		m.kinds[b.Events[i].Kind].Inc()
	}
	lag := float64(now.UnixNano())/1e9 - b.Time
	m.lag.WithLabelValues(strconv.Itoa(int(rank))).Set(max(lag, 0))
}

// watch exposes what the announcer holds.
func (m *metrics) watch(r prometheus.Registerer, a *announcer, followers func() float64) {
	f := promauto.With(r)
	for tier, name := range [tiers]string{"device", "host", "disk", "shared"} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spokegate_worker_kv_blocks", Help: "Blocks announced, by tier.", ConstLabels: prometheus.Labels{"tier": name}}, func() float64 { return float64(a.counts().held[tier]) })
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "spokegate_worker_kv_followers", Help: "Pickers that follow."}, followers)
	f.NewCounterFunc(prometheus.CounterOpts{Name: "spokegate_worker_kv_snapshots_total", Help: "Snapshots made for pickers."},
		func() float64 { return float64(a.counts().snapshots) })
}
