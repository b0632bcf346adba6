package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// decideMemory takes, frees and settles four levels of all kinds at once.
func decideMemory() (micro, error) {
	m := limits.NewMemory(limits.MemoryConfig{})
	var ls []policy.Limit
	for i, level := range []policy.Level{policy.Platform, policy.ModelLevel, policy.TeamLevel, policy.KeyLevel} {
		ls = append(ls, policy.Limit{
			Level: level, ID: fmt.Sprint("limit-", i), RequestsPerSecond: 1e8, Burst: 1e8, Concurrency: 1e6,
			TokensPerMinute: 1 << 40, RequestsPerDay: 1 << 40, TokensPerDay: 1 << 40, RequestsPerMonth: 1 << 40, TokensPerMonth: 1 << 40,
		})
	}
	names := serials(1 << 17)
	ctx, now, i := context.Background(), time.Now(), 0
	return micro{name: "limits.decide_memory", unit: "ns", times: inNanos, ours: func() error {
		now = now.Add(time.Microsecond)
		i++
		d, err := m.Acquire(ctx, now, limits.Ask{Admission: names[i%len(names)], Limits: ls, Tokens: 1000})
		if err != nil || !d.Admitted {
			return fmt.Errorf("refused: %v %w", d, err)
		}
		return m.Release(ctx, now, d.Hold, limits.Used{Tokens: 700})
	}}, nil
}

func serials(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", i)
	}
	return out
}
