package router

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// TestParallelLives lets many requests live at once, each told by several goroutines, while workers come and go. At the
// end nothing may be left on any worker.
func TestParallelLives(t *testing.T) {
	p := newPool(t, Config{MaxBlocks: 500, Sessions: 3}, a, b, c)
	p.SetRouting(policy.Routing{OverlapWeight: 1, Temperature: 0.1, BlockBytes: 8, AffinityWeight: 1, CreditDecay: 0.1, Split: policy.Split{CachedShare: 1}})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for i := range 300 {
				if g == 0 && i%10 == 0 {
					p.SetWorkers([]Worker{{Addr: a, Role: RoleDecode}, {Addr: b, Ranks: 2, Blocks: 9, BlockTokens: 9}, {Addr: "10.0.1.1:1", Role: RolePrefill}, {Addr: c}}[:1+r.IntN(4)])
					continue
				}
				if g == 1 {
					p.Reported(b, r.IntN(2), Report{At: noon.Add(time.Duration(i) * time.Second), Running: r.IntN(9), Waiting: r.IntN(3), CacheUsed: r.Float64()})
				}
				live(p, r, fmt.Sprint(i%5), noon.Add(time.Duration(i)*time.Second))
			}
		})
	}
	wg.Wait()
	for _, l := range p.Load() {
		if l.PrefillBlocks != 0 || l.DecodeBlocks != 0 || l.Requests != 0 {
			t.Errorf("left over: %+v", l)
		}
	}
	p.index.check(t)
}

func live(p *pool, r *rand.Rand, name string, now time.Time) {
	choice, err := p.Pick(now, Ask{Prompt: []byte(text(1+r.IntN(30), name)), Split: true, Session: r.Uint64N(9)})
	if err != nil {
		p.t.Error(err)
		return
	}
	k := choice.Booking
	addr := choice.Addrs[r.IntN(len(choice.Addrs))]
	var wg sync.WaitGroup
	for _, tell := range []func(){k.FirstByte, func() { k.Serving(addr) }, k.Release, k.Release, func() { _ = choice.Explain() }} {
		wg.Go(tell)
	}
	wg.Wait()
}

// A burst through many goroutines spreads as one through a loop does: picking and booking are one step.
func TestParallelBurst(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if _, err := p.Pick(noon, Ask{Prompt: []byte(text(100, "p"))}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.want("thirty", "100/900/10 100/900/10 100/900/10")
}
