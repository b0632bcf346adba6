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
	for _, op := range []string{"acquire", "renew", "release", "announce", "look", "raise"} {
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
