package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/zeebo/xxh3"
)

// micro is a piece of one process beside a bare piece of work on the same bytes.
type micro struct {
	name    string
	unit    string
	note    string       // what against is
	times   float64      // units in a nanosecond
	per     int          // what is measured happens so often in one call; 0: once
	ours    func() error // one call
	against func()       // nil: nothing to compare with
	done    func()       // nil: nothing to free
	cpu     bool         // CPU time counts, and not what the clock says
}

const (
	inNanos  = 1.0
	inMicros = 1e-3
)

// inside measures parts of the door in this process.
func inside(ctx context.Context, o options) (all []figure, err error) {
	makers := []struct {
		name string
		make func() (micro, error)
	}{
		{"limits.decide_memory", decideMemory},
		{"extauthz.check_1k", func() (micro, error) { return check("1k", 1<<10) }},
		{"extauthz.check_330k", func() (micro, error) { return check("330k", 330<<10) }},
		{"extproc.chunk", meterChunk},
		{"prompt.render_330k", renderChat},
		{"prompt.own_330k", renderOwn},
		{"prompt.normalise_330k", normalise("prompt.normalise_330k", englishLine)},
		{"prompt.normalise_330k_vi", normalise("prompt.normalise_330k_vi", vietnameseLine)},
		{"prompt.normalise_330k_zh", normalise("prompt.normalise_330k_zh", chineseLine)},
	}
	for _, m := range makers {
		if !o.wants(m.name) {
			continue
		}
		b, err := m.make()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		fs, err := b.measure(ctx, o.rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		all = append(all, fs...)
	}
	if o.wants("limits.decide_redis", "limits.decide_redis_c16", "limits.admissions_redis") {
		fs, err := decideRedis(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("limits.decide_redis: %w", err)
		}
		all = append(all, fs...)
	}
	for _, m := range []struct {
		name    string
		measure func(context.Context, options) ([]figure, error)
	}{{"usage.journal usage.journal_p99", journal}, {"usage.ship", ship}, {"worker.proxy worker.chunk", proxies}, {"worker.events", events},
		{"router.pick router.pick_first router.pick_16", picks}, {"router.bytes_per_block", blockMemory}, {"router.events", blockEvents},
		{"epp.request_330k", pickerRequest},
		{"policy.lookup policy.revoke policy.bytes_per_key", lookUp},
		{"xds.revoke xds.hub_memory xds.hub_bytes_per_spoke", hubFigures}, {"xds.initial_sync xds.initial_in_force", initialSync},
		{"xds.cache_bytes_per_spoke xds.cache_revoke", oneResourceAKey},
		{"hub.revoke_doors", revokeDoors}} {
		if !o.wants(m.name) {
			continue
		}
		fs, err := m.measure(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		all = append(all, fs...)
	}
	return all, nil
}

// measure runs ours and the baseline in turn.
func (m micro) measure(ctx context.Context, rounds int) ([]figure, error) {
	if m.done != nil {
		defer m.done()
	}
	scale, call := m.times/float64(max(1, m.per)), perCall
	if m.cpu {
		call = cpuPerCall
	}
	var ours, against, allocs []float64
	for range rounds {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		took, objects, err := call(m.ours)
		if err != nil {
			return nil, err
		}
		ours, allocs = append(ours, took*scale), append(allocs, objects/float64(max(1, m.per)))
		if m.against != nil {
			took, _, _ := call(func() error { m.against(); return nil })
			against = append(against, took*scale)
		}
	}
	f := alone(m.name, m.unit, "", ours)
	if m.against != nil {
		f = compared(m.name, m.unit, m.note, ours, against)
	}
	progress("%s: %s %s, %.0f allocations", m.name, short(f.Value), m.unit, median(allocs))
	return []figure{f, alone(m.name+"_allocs", "allocations", "", allocs)}, nil
}

// perCall gives nanoseconds and allocated objects for one call, over about a fifth of a second.
func perCall(f func() error) (nanos, allocs float64, err error) {
	var before, after runtime.MemStats
	for n := 1; ; n *= 2 {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range n {
			if err := f(); err != nil {
				return 0, 0, err
			}
		}
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if took > 150*time.Millisecond {
			return float64(took) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
		}
	}
}

// touched is a bare copy and hash of the same bytes: the least that anything does which reads them.
func touched(body []byte) func() {
	to := make([]byte, len(body))
	return func() {
		copy(to, body)
		runtime.KeepAlive(xxh3.Hash(to))
	}
}
