package limits_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMemory(t *testing.T) {
	limitstest.Run(t, time.Nanosecond, func(_ *testing.T, ttl time.Duration) limits.Limiter {
		return limits.NewMemory(limits.MemoryConfig{LeaseTTL: ttl})
	})
}

func acquire(t testing.TB, m *limits.Memory, now time.Time, admission string, ls ...policy.Limit) limits.Decision {
	t.Helper()
	d, err := m.Acquire(t.Context(), now, limits.Ask{Admission: admission, Limits: ls})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func keyLimit(i int) policy.Limit {
	return policy.Limit{ID: fmt.Sprint("key-", i), RequestsPerSecond: 100, Burst: 2, Concurrency: 2}
}

func TestMemoryDropsIdleCounters(t *testing.T) {
	m, now := limits.NewMemory(limits.MemoryConfig{}), start
	for i := range 10_000 {
		d := acquire(t, m, now, fmt.Sprint("r", i), keyLimit(i))
		now = now.Add(time.Millisecond)
		if err := m.Release(t.Context(), now, d.Hold, limits.Used{}); err != nil {
			t.Fatal(err)
		}
		if n := m.Counters(); n > 100 {
			t.Fatalf("%d counters after %d keys, each used once", n, i)
		}
	}
	busy := acquire(t, m, now, "busy", keyLimit(7))
	for i := range 100 {
		acquire(t, m, now.Add(time.Second), fmt.Sprint("no limit ", i))
	}
	if n := m.Counters(); n != 1 || m.InFlight()["key-7"] != 1 {
		t.Errorf("%d counters, in flight %v: only the one in use should be left", n, m.InFlight())
	}
	if err := m.Release(t.Context(), now, busy.Hold, limits.Used{}); err != nil {
		t.Fatal(err)
	}
	if n := m.InFlight(); len(n) != 0 {
		t.Errorf("in flight: %v", n)
	}
}

func TestMemoryForgetsAdmissions(t *testing.T) {
	m := limits.NewMemory(limits.MemoryConfig{LeaseTTL: time.Minute, Remember: 10})
	for i := range 100 {
		d := acquire(t, m, start, fmt.Sprint("r", i), keyLimit(i))
		if err := m.Release(t.Context(), start, d.Hold, limits.Used{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Admissions(); n != 10 {
		t.Errorf("%d released admissions remembered, want 10", n)
	}
	acquire(t, m, start, "open", keyLimit(1))
	acquire(t, m, start.Add(time.Minute), "other")
	if n := m.Admissions(); n != 1 {
		t.Errorf("%d admissions after all had expired, want the last one alone", n)
	}
}

// A counter with a quota stays while its month lasts, though the key is silent, and goes after it.
func TestMemoryKeepsQuotasForTheirMonth(t *testing.T) {
	m := limits.NewMemory(limits.MemoryConfig{})
	l := policy.Limit{ID: "key", TokensPerMinute: 100}
	d, err := m.Acquire(t.Context(), start, limits.Ask{Admission: "a", Limits: []policy.Limit{l}, Tokens: 100})
	if err != nil || !d.Admitted {
		t.Fatal(d, err)
	}
	others := func(now time.Time) int {
		for i := range 10 {
			acquire(t, m, now, fmt.Sprint("other ", now, i))
		}
		return m.Counters()
	}
	if n := others(start.Add(30 * 24 * time.Hour)); n != 1 {
		t.Errorf("%d counters at the month's end", n)
	}
	if n := others(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)); n != 0 {
		t.Errorf("%d counters after it", n)
	}

	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	d, err = m.Acquire(t.Context(), april, limits.Ask{Admission: "b", Limits: []policy.Limit{l}, Tokens: 100})
	if err != nil || !d.Admitted {
		t.Fatal(d, err)
	}
	if err := m.Release(t.Context(), april, d.Hold, limits.Used{Unserved: true}); err != nil {
		t.Fatal(err)
	}
	if n := others(april); n != 0 {
		t.Errorf("%d counters after all was given back", n)
	}
}

func BenchmarkDecideMemory(b *testing.B) {
	m := limits.NewMemory(limits.MemoryConfig{})
	var ls []policy.Limit
	for i, level := range []policy.Level{policy.Platform, policy.ModelLevel, policy.TeamLevel, policy.KeyLevel} {
		ls = append(ls, policy.Limit{
			Level: level, ID: fmt.Sprint("limit-", i), RequestsPerSecond: 1e8, Burst: 1e8, Concurrency: 1e6,
			TokensPerMinute: 1 << 40, RequestsPerDay: 1 << 40, TokensPerDay: 1 << 40, RequestsPerMonth: 1 << 40, TokensPerMonth: 1 << 40,
		})
	}
	names := make([]string, 1<<17)
	for i := range names {
		names[i] = fmt.Sprint("admission-", i)
	}
	ctx, now := b.Context(), time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now = now.Add(time.Microsecond)
		d, err := m.Acquire(ctx, now, limits.Ask{Admission: names[i%len(names)], Limits: ls, Tokens: 1000})
		if err != nil || !d.Admitted {
			b.Fatal(d, err)
		}
		if err := m.Release(ctx, now, d.Hold, limits.Used{Tokens: 700}); err != nil {
			b.Fatal(err)
		}
	}
}
