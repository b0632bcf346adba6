package limits_test

import (
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
)

// All that is promised of Redis holds on a cluster of three masters, asked by way of one that may not be the spoke's.
func TestRedisCluster(t *testing.T) {
	cluster := limitstest.StartCluster(t)
	t.Run("suite", func(t *testing.T) {
		limitstest.Run(t, time.Microsecond, func(t *testing.T, ttl time.Duration) limits.Limiter {
			r := newRedis(t, limits.RedisConfig{URL: cluster.URL(), LeaseTTL: ttl, Timeout: patient})
			r.GoByNow()
			return waiting{r}
		})
	})
	t.Run("decides as Decide", func(t *testing.T) { decidesAsDecide(t, cluster.URL()) })
	t.Run("found through one node", func(t *testing.T) {
		for _, node := range cluster.Nodes {
			r := newRedis(t, limits.RedisConfig{URL: "redis://" + node.Addr + "?cluster=true", Spoke: "one", Timeout: patient})
			if err := r.Announce(t.Context(), time.Now()); err != nil {
				t.Errorf("by way of %s: %v", node.Addr, err)
			}
			d := mustAsk(t, r, "through "+node.Addr, true, places("key", 1))
			if err := r.Release(t.Context(), time.Now(), d.Hold, limits.Used{}); err != nil {
				t.Error(err)
			}
			flush(t, r)
		}
	})
	t.Run("without a node", func(t *testing.T) {
		d := doorWith(t, cluster.URL(), "a", timeout)
		mustAsk(t, d, "before", true, places("key", 1))
		owner := cluster.Owner(t, "{spokegate:s}:counter:key")
		owner.Freeze()
		mustAsk(t, d, "alone", false, places("key", 1)) // the door knows what it has admitted
		if !d.Away() {
			t.Error(d.Status())
		}
		owner.Thaw()
		d.returns(t)
	})
}
