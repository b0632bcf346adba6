package limits_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/limits"
)

// door is a limiter as a door has it, and what it says.
type door struct {
	*limits.Fallback
	redis   *limits.Redis
	metrics *prometheus.Registry
	log     *safeBuffer
}

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// timeout of a door's questions in tests that stop Redis, which wait for it; longer than the real one, as the machine is busy
// with other tests. They run side by side.
const timeout = 3 * time.Second

// beat is how long a door's announcement holds in these tests. It announces itself, and reads totals, three times in it.
const beat = 6 * time.Second

// newDoor makes a door that waits for Redis as long as it takes, where it is there at all.
func newDoor(t *testing.T, url, name string) *door {
	t.Helper()
	return doorWith(t, url, name, patient)
}

func doorWith(t *testing.T, url, name string, timeout time.Duration) *door {
	t.Helper()
	d := &door{metrics: prometheus.NewRegistry(), log: &safeBuffer{}}
	log := slog.New(slog.NewTextHandler(d.log, nil))
	var err error
	d.redis, err = limits.NewRedis(limits.RedisConfig{URL: url, Spoke: "s", Door: name, Timeout: timeout, DoorTTL: beat, LeaseTTL: unending, Registerer: d.metrics, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	d.Fallback, err = limits.NewFallback(d.redis, limits.NewMemory(limits.MemoryConfig{LeaseTTL: unending}),
		limits.FallbackConfig{Probe: 10 * time.Millisecond, Registerer: d.metrics, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func (d *door) gauge(t testing.TB, name string) (sum float64) {
	t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// pair starts two doors that know of each other.
func pair(t *testing.T, url string) (a, b *door) {
	t.Helper()
	return pairWith(t, url, patient)
}

func pairWith(t *testing.T, url string, timeout time.Duration) (a, b *door) {
	t.Helper()
	a, b = doorWith(t, url, "a", timeout), doorWith(t, url, "b", timeout)
	eventually(t, "both doors are seen", func() bool {
		_ = a.redis.Announce(t.Context(), time.Now())
		_ = b.redis.Announce(t.Context(), time.Now())
		return a.redis.Doors() == 2 && b.redis.Doors() == 2
	})
	return a, b
}

func (d *door) returns(t *testing.T) {
	t.Helper()
	eventually(t, "the door is back on Redis: "+d.Status(), func() bool { return !d.Away() })
}

func (d *door) release(t *testing.T, h limits.Hold) {
	t.Helper()
	if err := d.Release(t.Context(), time.Now(), h, limits.Used{}); err != nil {
		t.Error(err)
	}
}

// passes waits for a request of its own to pass.
func (d *door) passes(t *testing.T) {
	t.Helper()
	got := mustAsk(t, d, fmt.Sprint("pass", time.Now().UnixNano()), true, places("mine", 5))
	d.release(t, got.Hold)
}
