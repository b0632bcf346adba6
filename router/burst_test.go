package router

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

// A burst of equal prompts knows of itself. Over idle workers that hold nothing every pick is a tie: what the burst is
// having prefilled at one worker weighs as much as prefilling it at the next. So it goes round.
func TestBurstOverIdleWorkers(t *testing.T) {
	for _, weight := range []float64{0.5, 1, 2} {
		p := newPool(t, Config{OverlapWeight: weight}, a, b, c)
		for range 30 {
			p.pick(text(100, "p") + "tail")
		}
		for _, l := range p.Load() {
			if l.Requests != 10 {
				t.Errorf("weight %g: %s has %d of 30", weight, l.Addr, l.Requests)
			}
		}
	}
}

// Also where one worker holds the prompt already: after its first request, which costs nothing there, the next would have
// to share it, and the idle ones cost the same.
func TestBurstWhereOneHoldsThePrompt(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	p.pick(text(100, "p"), b).Booking.Release()
	var order []string
	for range 30 {
		order = append(order, p.pick(text(100, "p")).Addrs[0])
	}
	if order[0] != b || order[1] == b || order[2] == b || order[1] == order[2] {
		t.Errorf("first three: %v", order[:3])
	}
	p.want("thirty", "100/900/10 0/1000/10 100/900/10")
}

// A weight of 3 says that prefilling is three times as dear: the holder serves three before another begins, and then they
// take turns, for both hold the prompt now.
func TestBurstUnderAHighWeight(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 3}, a, b)
	p.pick(text(100, "p"), a).Booking.Release()
	var order string
	for range 8 {
		order += map[string]string{a: "a", b: "b"}[p.pick(text(100, "p")).Addrs[0]]
	}
	if order != "aaabbaba" {
		t.Errorf("order %s", order)
	}
}

// With the policy's defaults a burst of a long new prompt stays where it is computed, which costs the fleet once, until what
// the worker has in decode weighs as much: 1000 blocks queued at a cost of 16 each against as many missing elsewhere, at 32.
func TestBurstByDefault(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: policy.DefaultOverlapWeight, MissWeight: policy.DefaultMissWeight}, a, b)
	var order string
	for range 36 {
		order += map[string]string{a: "a", b: "b"}[p.pick(text(1000, "p")).Addrs[0]]
	}
	if order != strings.Repeat("a", 17)+strings.Repeat("b", 17)+"ab" {
		t.Errorf("order %s", order)
	}
}

// Different prompts never tie by what is held, only by load: they spread as well.
func TestBurstOfDifferentPrompts(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	for i := range 30 {
		p.pick(text(100, fmt.Sprintf("%c-", 'A'+i)))
	}
	p.want("thirty", "1000/0/10 1000/0/10 1000/0/10")
}

// Without prompts and with weight 0 the least loaded is picked, and equals go round.
func TestLoadAlone(t *testing.T) {
	p := newPool(t, Config{}, a, b)
	for range 4 {
		p.pick("").Booking.FirstByte()
	}
	p.want("four", "0/0/2 0/0/2")
	p.pick(text(9, "p"), a).Booking.FirstByte()
	if got := p.pick(text(9, "p")).Addrs[0]; got != b {
		t.Errorf("picked %s for what it holds, at weight 0", got)
	}
}
