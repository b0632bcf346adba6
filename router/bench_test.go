package router

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/router/blocktree"
)

// busy is a fleet as coding agents fill it: a thousand workers hold a million announced blocks, each behind a system prompt that
// all share, every second one in host memory; a thousand other prompts were sent lately. The prompt is that of a session whose
// turns the first worker has served, some 330 KB.
func busy(b *testing.B) (r *Router, prompt []byte, now time.Time) {
	const workers, system, blocks, longest = 1000, 60, 1000, 5500
	rnd := rand.New(rand.NewPCG(1, 1))
	text := func(n int) []byte {
		t := make([]byte, n*58)
		for i := range t {
			t[i] = byte('a' + rnd.IntN(26))
		}
		return t
	}
	r, now = New(Config{OverlapWeight: 16, MissWeight: 1, Seed: 1}), time.Now()
	ws := make([]Worker, workers)
	for i := range ws {
		ws[i].Addr = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1)
	}
	r.SetWorkers(ws)
	shared := text(system)
	sent := func(text []byte) {
		now = now.Add(time.Millisecond)
		c, err := r.Pick(now, Ask{Prompt: text, Text: text})
		if err != nil {
			b.Fatal(err)
		}
		c.Booking.FirstByte()
		c.Booking.Release()
	}
	for i, w := range ws {
		own := append(append([]byte(nil), shared...), text(blocks)...)
		if i == 0 {
			own = append(own, text(longest-blocks)...)
			prompt = own
		}
		f := r.Announced(w.Addr, 0, 1)
		if lost := f.Stored(cut(own, blocktree.Tier(i%2))); lost > 0 {
			b.Fatal(lost)
		}
		sent(own[:min(len(own), 30_000)])
	}
	for n := 30_000; n < len(prompt)-3000; n += 3000 {
		sent(prompt[:n])
	}
	return r, prompt, now
}

// cut is a text in blocks of many lengths, as tokens make them.
func cut(text []byte, tier blocktree.Tier) (blocks []blocktree.Block) {
	for len(text) > 0 {
		n, key := min(len(text), 40+int(text[0])%32), uint32(len(blocks)+1)
		blocks = append(blocks, blocktree.Block{Key: key, Parent: key - 1, Length: uint32(n), Hash: xxh3.HashSeed(text[:n], 1), Tier: tier})
		text = text[n:]
	}
	return blocks
}

// BenchmarkPick330K picks for the next turn of a long session, alone and from many goroutines.
func BenchmarkPick330K(b *testing.B) {
	r, prompt, now := busy(b)
	var ticks atomic.Int64
	pick := func() {
		c, err := r.Pick(now.Add(time.Duration(ticks.Add(1))*time.Microsecond), Ask{Prompt: prompt, Text: prompt})
		if err != nil || c.Held.Bytes < 300_000 {
			panic(fmt.Sprint(c.Held, err))
		}
		c.Booking.FirstByte()
		c.Booking.Release()
	}
	b.Run("one", func(b *testing.B) {
		b.SetBytes(int64(len(prompt)))
		b.ReportAllocs()
		for b.Loop() {
			pick()
		}
	})
	b.Run("16 goroutines", func(b *testing.B) {
		b.SetBytes(int64(len(prompt)))
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pick()
			}
		})
	})
	b.Run("xxh3", func(b *testing.B) {
		b.SetBytes(int64(len(prompt)))
		for b.Loop() {
			xxh3.HashSeed(prompt, 1)
		}
	})
}
