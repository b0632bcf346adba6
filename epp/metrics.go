package epp

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spokegate/spokegate/router"
)

type metrics struct {
	picks   *prometheus.CounterVec
	splits  *prometheus.CounterVec
	blocks  *prometheus.CounterVec
	overlap *prometheus.CounterVec
	held    *prometheus.CounterVec
	texts   *prometheus.CounterVec
	cached  *prometheus.CounterVec
	seconds prometheus.Histogram
	refused *prometheus.CounterVec // by a Server, before a pick
	reading prometheus.Gauge       // bytes that it holds
}

var loadDesc = prometheus.NewDesc("spokegate_picker_worker_load",
	"What is booked on a worker now, all its ranks together, by kind: requests, waiting (those without a first byte), prefill_blocks, decode_blocks.",
	[]string{"endpoint", "worker", "kind"}, nil)

var (
	othersDesc = prometheus.NewDesc("spokegate_picker_worker_others",
		"Requests at a worker that others sent, by its own word: beyond what is booked.", []string{"endpoint", "worker"}, nil)
	busyDesc = prometheus.NewDesc("spokegate_picker_worker_busy",
		"How many data-parallel ranks of a worker are beyond a busy threshold; of a worker without ranks 1 or 0.", []string{"endpoint", "worker"}, nil)
	workersDesc = prometheus.NewDesc("spokegate_picker_workers",
		"Workers that said how much is known of what they hold, by index: indexed, predictive, or degraded.", []string{"endpoint", "index"}, nil)
	degradedDesc = prometheus.NewDesc("spokegate_picker_degraded",
		"Workers whose blocks should be known and are not, by cause: unreachable, events, model, profile, block_size, silent, diverging.", []string{"endpoint", "cause"}, nil)
	partedDesc = prometheus.NewDesc("spokegate_picker_parted",
		"Of the last 50 answers of a worker that announces its blocks, those whose cached tokens were others than what it had announced, by more than a block.",
		[]string{"endpoint", "worker"}, nil)
	blocksDesc = prometheus.NewDesc("spokegate_picker_blocks",
		"KV blocks that workers announced to hold, what two hold counted twice.", []string{"endpoint"}, nil)
)

func newMetrics(r prometheus.Registerer, p *Picker) *metrics {
	r.MustRegister(loads{p})
	f := promauto.With(r)
	return &metrics{
		picks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_picks_total",
			Help: "Picks by endpoint and result: picked, no_worker, none_eligible, busy.",
		}, []string{"endpoint", "result"}),
		splits: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_splits_total",
			Help: "Picks of which another worker than the one chosen was to compute the prompt.",
		}, []string{"endpoint"}),
		blocks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_prompt_blocks_total",
			Help: "Blocks of the prompts that were picked for.",
		}, []string{"endpoint"}),
		overlap: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_overlap_blocks_total",
			Help: "Of those, blocks that the chosen worker was believed to hold.",
		}, []string{"endpoint"}),
		held: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_announced_bytes_total",
			Help: "Bytes of the prompts' texts that the chosen worker had announced to hold.",
		}, []string{"endpoint"}),
		cached: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_cached_tokens_total",
			Help: "Prompt tokens in a cache, of answered requests whose worker announces its blocks, by stage: best (what the worker with the most of it held), chosen (what the chosen one held), reported (what the engine says that it found).",
		}, []string{"endpoint", "stage"}),
		texts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_pick_texts_total",
			Help: "Requests by whether their text was rendered as the engine does, to be held against announced blocks: rendered; up to its first image, audio, video, or parts (other than text), or not at all; or why not: unknown (no worker announces), tokens, prompts, template, operation, busy.",
		}, []string{"endpoint", "result"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_picker_refused_total",
			Help: "Requests that were refused before a pick, in the Endpoint Picker Protocol, by reason: too_large, held (all together hold too much), trailers, mode (of the gateway's filter, unknown).",
		}, []string{"reason"}),
		reading: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_picker_held_bytes",
			Help: "Bytes of requests that are not whole yet or not given back, in the Endpoint Picker Protocol.",
		}),
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
		switch {
		case err == router.ErrNoneEligible:
			result = "none_eligible"
		case errors.Is(err, router.ErrBusy):
			result = "busy"
		}
		m.picks.WithLabelValues(endpoint, result).Inc()
		return
	}
	m.picks.WithLabelValues(endpoint, "picked").Inc()
	if c.Prefill != "" {
		m.splits.WithLabelValues(endpoint).Inc()
	}
	m.blocks.WithLabelValues(endpoint).Add(float64(c.Blocks))
	m.overlap.WithLabelValues(endpoint).Add(float64(c.Overlap))
	m.held.WithLabelValues(endpoint).Add(float64(c.Held.Bytes))
}

// loads reads the routers when it is scraped, so that no count is kept twice.
type loads struct{ p *Picker }

func (l loads) Describe(ch chan<- *prometheus.Desc) {
	ch <- loadDesc
	ch <- othersDesc
	ch <- busyDesc
	ch <- workersDesc
	ch <- degradedDesc
	ch <- blocksDesc
	ch <- partedDesc
}

func (l loads) Collect(ch chan<- prometheus.Metric) {
	counts, causes := map[[2]string]int{}, map[[2]string]int{}
	for _, i := range l.p.Indexes() {
		counts[[2]string{i.Endpoint, i.State}]++
		if i.State == Degraded {
			causes[[2]string{i.Endpoint, i.Cause}]++
		}
	}
	for of, n := range causes {
		ch <- prometheus.MustNewConstMetric(degradedDesc, prometheus.GaugeValue, float64(n), of[0], of[1])
	}
	for of, n := range counts {
		ch <- prometheus.MustNewConstMetric(workersDesc, prometheus.GaugeValue, float64(n), of[0], of[1])
	}
	for _, c := range l.p.checks.list() {
		ch <- prometheus.MustNewConstMetric(partedDesc, prometheus.GaugeValue, float64(c.parted), c.endpoint, c.worker)
	}
	for endpoint, r := range *l.p.routers.Load() {
		_, held := r.Size()
		ch <- prometheus.MustNewConstMetric(blocksDesc, prometheus.GaugeValue, float64(held), endpoint)
		for addr, of := range together(r.Load()) {
			for kind, v := range map[string]int{"requests": of.Requests, "waiting": of.Waiting, "prefill_blocks": of.PrefillBlocks, "decode_blocks": of.DecodeBlocks} {
				ch <- prometheus.MustNewConstMetric(loadDesc, prometheus.GaugeValue, float64(v), endpoint, addr, kind)
			}
			ch <- prometheus.MustNewConstMetric(othersDesc, prometheus.GaugeValue, float64(of.Others), endpoint, addr)
			ch <- prometheus.MustNewConstMetric(busyDesc, prometheus.GaugeValue, float64(of.busy), endpoint, addr)
		}
	}
}

// allRanks is the load of all ranks of a worker, and how many are busy.
type allRanks struct {
	router.WorkerLoad
	busy int
}

func together(all []router.WorkerLoad) map[string]allRanks {
	sums := map[string]allRanks{}
	for _, w := range all {
		of := sums[w.Addr]
		of.Requests += w.Requests
		of.Waiting += w.Waiting
		of.PrefillBlocks += w.PrefillBlocks
		of.DecodeBlocks += w.DecodeBlocks
		of.Others += w.Others
		if w.Busy != "" {
			of.busy++
		}
		sums[w.Addr] = of
	}
	return sums
}
