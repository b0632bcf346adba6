package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spokegate/spokegate/router"
)

type metrics struct {
	picks   *prometheus.CounterVec
	blocks  *prometheus.CounterVec
	overlap *prometheus.CounterVec
	seconds prometheus.Histogram
}

var loadDesc = prometheus.NewDesc("spokegate_picker_worker_load",
	"What is booked on a worker now, by kind: requests, prefill_blocks, decode_blocks.",
	[]string{"endpoint", "worker", "kind"}, nil)

func newMetrics(r prometheus.Registerer, p *Picker) *metrics {
	r.MustRegister(loads{p})
	f := promauto.With(r)
	return &metrics{
		picks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_picks_total",
			Help: "Picks by endpoint and result: picked, no_worker, none_eligible.",
		}, []string{"endpoint", "result"}),
		blocks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_prompt_blocks_total",
			Help: "Blocks of the prompts that were picked for.",
		}, []string{"endpoint"}),
		overlap: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_overlap_blocks_total",
			Help: "Of those, blocks that the chosen worker was predicted to hold.",
		}, []string{"endpoint"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "spokegate_pick_seconds",
			Help:    "Time to pick, rendering apart.",
			Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .01},
		}),
	}
}

func (m *metrics) picked(endpoint string, c router.Choice, err error, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	if err != nil {
		result := "no_worker"
		if err == router.ErrNoneEligible {
			result = "none_eligible"
		}
		m.picks.WithLabelValues(endpoint, result).Inc()
		return
	}
	m.picks.WithLabelValues(endpoint, "picked").Inc()
	m.blocks.WithLabelValues(endpoint).Add(float64(c.Blocks))
	m.overlap.WithLabelValues(endpoint).Add(float64(c.Overlap))
}

// loads reads the routers when it is scraped, so that no count is kept twice.
type loads struct{ p *Picker }

func (l loads) Describe(ch chan<- *prometheus.Desc) { ch <- loadDesc }

func (l loads) Collect(ch chan<- prometheus.Metric) {
	l.p.mu.RLock()
	defer l.p.mu.RUnlock()
	for endpoint, r := range l.p.routers {
		for _, w := range r.Load() {
			for kind, v := range map[string]int{"requests": w.Requests, "prefill_blocks": w.PrefillBlocks, "decode_blocks": w.DecodeBlocks} {
				ch <- prometheus.MustNewConstMetric(loadDesc, prometheus.GaugeValue, float64(v), endpoint, w.Addr, kind)
			}
		}
	}
}
