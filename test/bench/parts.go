package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
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

// pick chooses among 1,000 workers for a prompt of 330 KB that one of them holds but for its last turn.
func pick() (micro, error) {
	const size = 330_000
	r := router.New(router.Config{OverlapWeight: 1, Seed: 1})
	ws := make([]router.Worker, 1000)
	for i := range ws {
		ws[i].Addr = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)
	}
	r.SetWorkers(ws)
	now := time.Now()
	one := func(prompt []byte) error {
		now = now.Add(time.Microsecond)
		c, err := r.Pick(now, router.Ask{Prompt: prompt})
		if err == nil {
			c.Booking.FirstByte()
			c.Booking.Release()
		}
		return err
	}
	text := words(size)
	var failed error
	for i := range 200 { // other prompts: a million blocks
		failed = errors.Join(failed, one([]byte(fmt.Sprint(i)+strings.ReplaceAll(text, "e", string(rune('a'+i%26))))))
	}
	for n := 30_000; n < size; n += 3000 { // its own earlier turns
		failed = errors.Join(failed, one([]byte(text[:n])))
	}
	prompt := []byte(text)
	return micro{name: "router.pick", unit: "µs", times: inMicros, note: "bare xxh3 of the same 330 KB",
		ours: func() error { return one(prompt) }, against: func() { runtime.KeepAlive(xxh3.Hash(prompt)) }}, failed
}
