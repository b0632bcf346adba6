package sim

import "github.com/prometheus/client_golang/prometheus"

// metrics count tokens where they are spent, apart from what any answer says.
type metrics struct {
	registry                   *prometheus.Registry
	prompt, cached, generated  prometheus.Counter
	evicted                    prometheus.Counter
	complete, cut, refusedOnes prometheus.Counter
}

func newMetrics(c *clock) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		n := prometheus.NewCounter(prometheus.CounterOpts{Name: "spokegate_sim_" + name, Help: help})
		m.registry.MustRegister(n)
		return n
	}
	m.prompt = counter("prompt_tokens_total", "Prompt tokens, cached ones included.")
	m.cached = counter("cached_tokens_total", "Prompt tokens found in the block cache.")
	m.generated = counter("generation_tokens_total", "Tokens generated, also for clients that left.")
	m.evicted = counter("evicted_blocks_total", "Blocks evicted from the cache.")
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spokegate_sim_requests_total", Help: "Requests that ended, by how."}, []string{"outcome"})
	m.complete, m.cut, m.refusedOnes = requests.WithLabelValues("complete"), requests.WithLabelValues("cut"), requests.WithLabelValues("refused")
	gauge := func(name, help string, read func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "spokegate_sim_" + name, Help: help},
			func() float64 { return float64(read()) })
	}
	m.registry.MustRegister(requests,
		gauge("requests_running", "Requests that hold a slot.", c.running.Load),
		gauge("requests_waiting", "Requests that wait for a slot.", c.waiting.Load))
	return m
}
