package router

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// TestOwnRequestsNeverCountTwice: a worker that serves this router alone reports what is in its engine, which begins later than
// what is booked and ends before it, by reports that are late: never is any of that taken for others'.
func TestOwnRequestsNeverCountTwice(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := newPool(t, Config{OverlapWeight: 1}, a)
		p.SetWorkers([]Worker{{Addr: a, Blocks: 1000, BlockTokens: 2}})
		type request struct {
			b        *Booking
			from, to time.Duration // in the engine
			end      time.Duration // of the booking
			blocks   int
		}
		var all []*request
		type late struct {
			Report
			arrives time.Duration
		}
		var reports []late
		ms := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Millisecond }
		for now := time.Duration(0); now < 60*time.Second; now += 100 * time.Millisecond {
			p.now = noon.Add(now)
			if r.IntN(3) == 0 && int(now.Seconds())%10 < 7 { // and a pause now and then, when load falls
				k := &request{b: p.pick(text(1+r.IntN(40), "p")).Booking, from: now + ms(300), end: now + ms(5000), blocks: 1}
				k.to = max(k.end-ms(200), k.from)
				all = append(all, k)
			}
			for _, k := range all {
				if k.end <= now {
					k.b.Release()
				}
			}
			if now%time.Second == 0 {
				rep := Report{At: p.now}
				for _, k := range all {
					if k.from <= now && now < k.to {
						rep.Running++
						rep.CacheUsed += float64(k.blocks) / 1000
					}
				}
				reports = append(reports, late{rep, now + ms(900)})
			}
			for len(reports) > 0 && reports[0].arrives <= now {
				p.Reported(a, 0, Report{At: p.now, Running: reports[0].Running, CacheUsed: reports[0].CacheUsed})
				reports = reports[1:]
			}
			if l := p.Load()[0]; l.Others != 0 || l.OtherBlocks != 0 {
				t.Fatalf("seed %d, after %v: %+v", seed, now, l)
			}
		}
	}
}

// TestSessionsAreBounded: those that came last are known, and no more than there is room for.
func TestSessionsAreBounded(t *testing.T) {
	s, w := sessions{most: 10, ttl: time.Minute}, &worker{}
	for i := range uint64(1000) {
		s.visit(noon, i+1, w)
		if s.last(noon, i+1) != w || i > 3 && s.last(noon, i-2) != w || len(s.young)+len(s.elder) > 10 {
			t.Fatalf("after %d: %d and %d remembered", i+1, len(s.young), len(s.elder))
		}
	}
	if s.last(noon.Add(time.Minute), 1000) != nil || s.last(noon, 1) != nil || s.last(noon, 0) != nil {
		t.Error("remembered for too long")
	}
	s.visit(noon, 0, w)
	if s.last(noon, 0) != nil {
		t.Error("no session is one")
	}
	tiny := sessions{most: 1, ttl: time.Minute}
	tiny.visit(noon, 1, w)
	tiny.visit(noon, 2, w)
	if tiny.last(noon, 2) != w {
		t.Error("room for one does not hold one")
	}
}

// TestBusyIsNotRemembered: thresholds of each kind close and open again by themselves; reports that stop coming do not keep them
// closed, and settings may change between any two asks.
func TestBusyIsNotRemembered(t *testing.T) {
	for _, busy := range []policy.Busy{{DecodeShare: 0.5}, {PrefillTokens: 20}, {Queue: 1}} {
		p := newPool(t, Config{}, a, b)
		p.SetWorkers([]Worker{{Addr: a, Blocks: 20, BlockTokens: 2}, {Addr: b, Blocks: 20, BlockTokens: 2}})
		p.SetRouting(policy.Routing{OverlapWeight: 1, BlockBytes: 8, Busy: busy})
		ask := func() error {
			c, err := p.Pick(p.now, Ask{Prompt: []byte(text(1, "q"))})
			c.Booking.Release()
			return err
		}
		var held []*Booking
		for ask() == nil {
			k := p.pick(text(12, "p")).Booking
			if busy.DecodeShare > 0 {
				k.FirstByte()
			}
			if held = append(held, k); len(held) > 10 {
				t.Fatalf("%+v never closes", busy)
			}
		}
		p.SetRouting(policy.Routing{OverlapWeight: 1, BlockBytes: 8})
		if err := ask(); err != nil {
			t.Errorf("%+v: without thresholds: %v", busy, err)
		}
		p.SetRouting(policy.Routing{OverlapWeight: 1, BlockBytes: 8, Busy: busy})
		if ask() == nil {
			t.Errorf("%+v: open under load", busy)
		}
		held[0].Release()
		if err := ask(); err != nil {
			t.Errorf("%+v: %v after load fell", busy, err)
		}
		for _, k := range held {
			k.Release()
		}
		for _, addr := range []string{a, b} {
			p.Reported(addr, 0, Report{At: p.now, Waiting: 50, CacheUsed: 1})
		}
		if ask() == nil && busy.PrefillTokens == 0 {
			t.Errorf("%+v: open, though all workers say that they are full", busy)
		}
		p.now = p.now.Add(fresh)
		if err := ask(); err != nil {
			t.Errorf("%+v: %v after the last report is old", busy, err)
		}
	}
	if !slices.Equal([]float64{shareFor(false), shareFor(true)}, []float64{1, 0.8}) {
		t.Error("shares")
	}
}
