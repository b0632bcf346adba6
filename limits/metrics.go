package limits

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// redisMetrics are those of one Redis.
type redisMetrics struct {
	errors *prometheus.CounterVec
	lost   prometheus.Counter
}

func newRedisMetrics(r prometheus.Registerer) *redisMetrics {
	with := promauto.With(r)
	m := &redisMetrics{
		errors: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_limits_redis_errors_total", Help: "Calls of Redis that failed or timed out, by what they were for.",
		}, []string{"op"}),
		lost: with.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_limits_releases_lost_total", Help: "Releases that did not reach Redis; their leases expired by themselves.",
		}),
	}
	for _, op := range []string{"acquire", "renew", "release", "announce"} {
		m.errors.WithLabelValues(op) // so that growth is seen from the first one on
	}
	return m
}

// fallbackMetrics are those of one Fallback.
type fallbackMetrics struct {
	away, doors prometheus.Gauge
	rebuilt     prometheus.Counter
}

func newFallbackMetrics(r prometheus.Registerer) *fallbackMetrics {
	with := promauto.With(r)
	return &fallbackMetrics{
		away: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_limits_fallback", Help: "1 while this door counts its share of the limits by itself because Redis is away, else 0.",
		}),
		doors: with.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_limits_doors", Help: "Doors that share the limits, as seen last; each takes its share by it while Redis is away.",
		}),
		rebuilt: with.NewCounter(prometheus.CounterOpts{
			Name: "spokegate_limits_rebuilds_total", Help: "Times that Redis had lost its memory and this door put back the counts of the day and the month.",
		}),
	}
}

// memoryMetrics are those of one Memory. It sees every admission of its door, also those that Redis counts.
type memoryMetrics struct{ reserved, refunded, overshoot, unsettled prometheus.Counter }

func newMemoryMetrics(r prometheus.Registerer) *memoryMetrics {
	with := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &memoryMetrics{
		reserved:  counter("spokegate_limits_reserved_tokens_total", "Tokens reserved at admission, of requests that a quota counts."),
		refunded:  counter("spokegate_limits_refunded_tokens_total", "Reserved tokens that were not used and were given back at the end."),
		overshoot: counter("spokegate_limits_overshoot_tokens_total", "Tokens used above what was reserved; by so many at most quotas were exceeded."),
		unsettled: counter("spokegate_limits_unsettled_total", "Requests whose reservation stands, because nobody said what they used."),
	}
}

// settled counts the end of a request.
func (m *memoryMetrics) settled(reserved int64, used Used) {
	switch {
	case used.Tokens < 0:
		m.unsettled.Inc()
	case used.Tokens < reserved:
		m.refunded.Add(float64(reserved - used.Tokens))
	default:
		m.overshoot.Add(float64(used.Tokens - reserved))
	}
}
