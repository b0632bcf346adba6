package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// herd is a fleet as coding agents fill it: a thousand workers hold a million announced blocks, each behind a system prompt that
// all share, every second one in host memory; a thousand other prompts were sent lately and are still remembered. One session's
// turns are all at the first worker.
type herd struct {
	router  *router.Router
	session []byte // the prompt of its next turn: 83,000 tokens of four bytes
	feeds   []*router.Feed
	clock   atomic.Int64
	rand    *rand.Rand
}

const (
	herdWorkers = 1000
	herdBlocks  = 1000 // of each
	herdSystem  = 60   // of these, all share
	longBlocks  = 5700
	hashSeed    = 1
)

// newHerd announces all blocks; remembers: it is sent the prompts too.
func newHerd(remembers bool) (*herd, error) {
	h := &herd{router: router.New(router.Config{OverlapWeight: 16, MissWeight: 1, Seed: hashSeed}), rand: rand.New(rand.NewPCG(1, 1))}
	h.clock.Store(time.Now().UnixMicro())
	ws := make([]router.Worker, herdWorkers)
	for i := range ws {
		ws[i].Addr = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)
	}
	h.router.SetWorkers(ws)
	system := h.text(herdSystem)
	for i, w := range ws {
		blocks := herdBlocks
		if i == 0 {
			blocks = longBlocks
		}
		text := append(system[:len(system):len(system)], h.text(blocks-herdSystem)...)
		h.feeds = append(h.feeds, h.router.Announced(w.Addr, 0, hashSeed))
		if lost := h.feeds[i].Stored(blocksOf(text, 1, blocktree.Tier(i%2))); lost > 0 {
			return nil, fmt.Errorf("%d blocks have no place", lost)
		}
		if i == 0 {
			h.session = text
		}
		if !remembers {
			continue
		}
		if err := h.pick(text[:min(len(text), 60_000)], 0); err != nil {
			return nil, err
		}
	}
	for n := 60_000; remembers && n < len(h.session); n += 3000 { // the session's earlier turns
		if err := h.pick(h.session[:n], 0); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// text is as long as so many blocks.
func (h *herd) text(blocks int) []byte {
	b := make([]byte, blocks*58)
	for i := range b {
		b[i] = byte('a' + h.rand.IntN(26))
	}
	return b
}

// blocksOf cuts a text as tokens would: in blocks of many lengths, with keys from first on.
func blocksOf(text []byte, first uint32, tier blocktree.Tier) (all []blocktree.Block) {
	for parent := uint32(0); len(text) > 0; first++ {
		n := min(len(text), 42+int(text[0])%32)
		all = append(all, blocktree.Block{Key: first, Parent: parent, Length: uint32(n), Hash: xxh3.HashSeed(text[:n], hashSeed), Tier: tier})
		parent, text = first, text[n:]
	}
	return all
}

// pick has a request live, of whose prompt at least so many bytes are held where it goes.
func (h *herd) pick(prompt []byte, held int) error {
	c, err := h.router.Pick(time.UnixMicro(h.clock.Add(1)), router.Ask{Prompt: prompt, Text: prompt})
	if err != nil {
		return err
	}
	c.Booking.FirstByte()
	c.Booking.Release()
	if c.Held.Bytes < held {
		return fmt.Errorf("%d bytes of %d are found", c.Held.Bytes, held)
	}
	return nil
}

// picks measures a pick for the session's next turn, the first one for a session that no prompt was ever compared with, and
// many at a time; each beside a bare xxh3 of the same bytes. CPU time.
func picks(ctx context.Context, o options) ([]figure, error) {
	progress("router: a thousand workers, a million blocks")
	h, err := newHerd(true)
	if err != nil {
		return nil, err
	}
	next := func() error { return h.pick(h.session, len(h.session)*9/10) }
	bare := func() error { runtime.KeepAlive(xxh3.HashSeed(h.session, hashSeed)); return nil }
	var ours, first, against, one, many, allocs []float64
	for range o.rounds {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		took, objects, err := cpuPerCall(next)
		fresh, failed := h.fresh()
		xxh, _, _ := cpuPerCall(bare)
		if err = errors.Join(err, failed); err != nil {
			return nil, err
		}
		ours, allocs, first, against = append(ours, took*inMicros), append(allocs, objects), append(first, fresh*inMicros), append(against, xxh*inMicros)
		for _, n := range []struct {
			goroutines int
			to         *[]float64
		}{{1, &one}, {16, &many}} {
			rate, err := perSecond(n.goroutines, next)
			if err != nil {
				return nil, err
			}
			*n.to = append(*n.to, rate)
		}
	}
	const note = "bare xxh3 of the same 330 KB; CPU"
	progress("router.pick: %s µs, the first of a session %s µs, %.0f allocations", short(median(ours)), short(median(first)), median(allocs))
	return []figure{
		compared("router.pick", "µs", note, ours, against),
		compared("router.pick_first", "µs", note+"; blocks that no prompt was compared with before", first, against),
		compared("router.pick_16", "picks/s", fmt.Sprintf("one goroutine; 16 on %d cores", runtime.GOMAXPROCS(0)), many, one),
		alone("router.pick_allocs", "allocations", "", allocs),
	}, nil
}

// fresh is what the first pick takes for a session that was announced a moment ago.
func (h *herd) fresh() (nanos float64, err error) {
	const times = 20
	var took time.Duration
	for range times {
		text := h.text(longBlocks)
		h.feeds[1].Cleared()
		h.feeds[1].Stored(blocksOf(text, 1, blocktree.Device))
		before := cpuTime()
		err = errors.Join(err, h.pick(text, len(text)*9/10))
		took += cpuTime() - before
	}
	return float64(took) / times, err
}

// perSecond is how often many goroutines call f together.
func perSecond(goroutines int, f func() error) (float64, error) {
	const lasting = 300 * time.Millisecond
	var calls atomic.Int64
	failed := make(chan error, goroutines)
	var all sync.WaitGroup
	start := time.Now()
	for range goroutines {
		all.Go(func() {
			for time.Since(start) < lasting {
				if err := f(); err != nil {
					failed <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	return float64(calls.Load()) / time.Since(start).Seconds(), <-failed
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuPerCall is perCall, in CPU time: that of the collector counts, and that of other processes does not.
func cpuPerCall(f func() error) (nanos, allocs float64, err error) {
	var before, after runtime.MemStats
	for n := 1; ; n *= 2 {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := cpuTime()
		for range n {
			if err := f(); err != nil {
				return 0, 0, err
			}
		}
		took := cpuTime() - start
		runtime.ReadMemStats(&after)
		if took > 60*time.Millisecond {
			return float64(took) / float64(n), float64(after.Mallocs-before.Mallocs) / float64(n), nil
		}
	}
}
