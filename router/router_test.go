package router

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const a, b, c = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"

// pool is a router over workers, with blocks of 8 bytes and short ways to use it.
type pool struct {
	*Router
	t   testing.TB
	now time.Time
}

func newPool(t testing.TB, cfg Config, addrs ...string) *pool {
	cfg.BlockBytes, cfg.Seed = 8, 1
	p := &pool{New(cfg), t, noon}
	p.set(addrs...)
	return p
}

func (p *pool) set(addrs ...string) {
	ws := make([]Worker, len(addrs))
	for i, addr := range addrs {
		ws[i] = Worker{Addr: addr}
	}
	p.SetWorkers(ws)
}

func (p *pool) pick(prompt string, subset ...string) Choice {
	p.t.Helper()
	choice, err := p.Pick(p.now, Ask{Prompt: []byte(prompt), Subset: subset})
	if err != nil {
		p.t.Fatal(err)
	}
	return choice
}

// loads writes every worker as "prefill/decode/requests".
func (p *pool) loads() string {
	var out []string
	for _, l := range p.Load() {
		out = append(out, fmt.Sprintf("%d/%d/%d", l.PrefillBlocks, l.DecodeBlocks, l.Requests))
	}
	return strings.Join(out, " ")
}

func (p *pool) want(what, loads string) {
	p.t.Helper()
	if got := p.loads(); got != loads {
		p.t.Errorf("%s: loads %s, want %s", what, got, loads)
	}
}

// text is n different blocks.
func text(n int, name string) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "%s%0*d", name, 8-len(name), i)
	}
	return s.String()
}

// TestWorkedExample builds the loads of the example from real bookings: (prefill 8, decode 10), (5, 5), (2, 9).
func TestWorkedExample(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	prompt := text(10, "p")
	for addr, w := range map[string]struct{ holds, decodes int }{a: {2, 10}, b: {5, 5}, c: {8, 9}} {
		p.pick(prompt[:8*w.holds], addr).Booking.Release()
		p.pick(text(w.decodes, "x"), addr).Booking.FirstByte()
	}
	p.want("before", "0/10/1 0/5/1 0/9/1")
	choice := p.pick(prompt)
	if want := []string{b, c, a}; !slices.Equal(choice.Addrs, want) {
		t.Errorf("picked %v, want %v", choice.Addrs, want)
	}
	if choice.Overlap != 5 || choice.Blocks != 10 {
		t.Errorf("overlap %d of %d, want 5 of 10", choice.Overlap, choice.Blocks)
	}
	want := "10 blocks; cost = 1 × prefill + decode\n" +
		b + ": overlap 5, prefill 5, decode 5, requests 1, cost 10 (chosen)\n" +
		c + ": overlap 8, prefill 2, decode 9, requests 1, cost 11\n" +
		a + ": overlap 2, prefill 8, decode 10, requests 1, cost 18\n"
	if got := choice.Explain(); got != want {
		t.Errorf("explained as\n%swant\n%s", got, want)
	}
}

func TestNobody(t *testing.T) {
	p := newPool(t, Config{})
	if _, err := p.Pick(noon, Ask{}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("no workers: %v", err)
	}
	p.set(a)
	for _, subset := range [][]string{{}, {"10.0.0.9"}, {"10.0.0.1:1"}} {
		if _, err := p.Pick(noon, Ask{Subset: subset}); !errors.Is(err, ErrNoneEligible) {
			t.Errorf("subset %v: %v", subset, err)
		}
	}
	p.want("nobody picked", "0/0/0")
	if got := (Choice{}).Explain(); got != "no choice\n" {
		t.Errorf("%q", got)
	}
}

func TestLifeOfABooking(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	p.pick(text(4, "p"), a).Booking.Release()
	choice, err := p.Pick(p.now, Ask{Prompt: []byte(text(10, "p") + "end"), Subset: []string{a}})
	if err != nil {
		t.Fatal(err)
	}
	k := choice.Booking
	p.want("picked: 4 held, 6 and a begun one to prefill", "7/4/1 0/0/0")
	k.FirstByte()
	p.want("first byte: all in decode", "0/11/1 0/0/0")
	k.FirstByte()
	p.want("first byte again", "0/11/1 0/0/0")
	k.Release()
	k.Release()
	k.FirstByte()
	k.Serving(b)
	p.want("released, and then late news", "0/0/0 0/0/0")
	var none *Booking
	none.Serving(a)
	none.FirstByte()
	none.Release()
}

func TestServingMovesTheBooking(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	p.pick(text(4, "p"), b).Booking.Release()
	k := p.pick(text(6, "p")).Booking // b: it holds four
	p.want("picked", "0/0/0 2/4/1 0/0/0")
	k.Serving(b)
	k.Serving("")
	p.want("served by the one picked", "0/0/0 2/4/1 0/0/0")
	k.Serving(a)
	p.want("retried", "6/0/1 0/0/0 0/0/0")
	k.Serving(b)
	p.want("and back", "0/0/0 2/4/1 0/0/0")
	k.Serving("10.9.9.9:1")
	p.want("served by a stranger", "0/0/0 0/0/0 0/0/0")
	k.FirstByte()
	p.want("the stranger's first byte", "0/0/0 0/0/0 0/0/0")
	k.Serving(c)
	p.want("no stranger after all", "0/0/0 0/0/0 0/6/1")
	k.Release()
	p.want("released", "0/0/0 0/0/0 0/0/0")
}

func TestAWorkerThatFlaps(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a)
	old := p.pick(text(5, "p")).Booking
	moved := p.pick(text(5, "q")).Booking
	p.set()
	p.set(a)
	p.want("back, and empty", "0/0/0")
	if choice := p.pick(text(5, "p")); choice.Overlap != 0 {
		t.Errorf("overlap %d with one that began anew", choice.Overlap)
	}
	old.FirstByte()
	old.Release()
	p.want("the old life's booking is released", "5/0/1")
	moved.Serving(a)
	p.want("it is served by the new life", "10/0/2")
	p.set(a, b)
	p.want("stays when others come", "10/0/2 0/0/0")
	moved.Release()
	p.want("released", "5/0/1 0/0/0")
}

func TestClearedForgetsButKeepsBookings(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	p.pick(text(5, "p"), a)
	p.Cleared(a)
	p.Cleared("10.9.9.9:1")
	p.want("cleared", "5/0/1 0/0/0")
	if choice := p.pick(text(5, "p"), a); choice.Overlap != 0 {
		t.Errorf("overlap %d after clearing", choice.Overlap)
	}
}

func TestTimeToLive(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1, TTL: time.Minute}, a)
	overlap := func() int {
		choice := p.pick(text(5, "p"), a)
		choice.Booking.Release()
		return choice.Overlap
	}
	for i, c := range []struct {
		wait time.Duration
		want int
	}{{0, 0}, {time.Minute - 1, 5}, {time.Minute - 1, 5}, {time.Minute, 0}, {-time.Hour, 5}, {time.Hour, 5}, {time.Minute, 0}} {
		p.now = p.now.Add(c.wait)
		if got := overlap(); got != c.want {
			t.Errorf("step %d: overlap %d, want %d", i, got, c.want)
		}
	}
}

func TestConversationStays(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b, c)
	for turn := 1; turn < 20; turn++ {
		for _, name := range []string{"x", "y", "z"} {
			choice := p.pick(text(turn*10, name))
			if want := (turn - 1) * 10; choice.Overlap != want {
				t.Fatalf("turn %d of %s: overlap %d, want %d\n%s", turn, name, choice.Overlap, want, choice.Explain())
			}
			choice.Booking.FirstByte()
			choice.Booking.Release()
		}
	}
}

func TestTemperature(t *testing.T) {
	u := 0.0
	p := newPool(t, Config{OverlapWeight: 1, Temperature: 1, Rand: func() float64 { return u }}, a, b, c)
	p.pick(text(10, "p"), c).Booking.Release()
	for _, c := range []struct {
		u    float64
		want []string
	}{{0, []string{a, c, b}}, {0.99, []string{c, b, a}}} {
		u = c.u
		choice := p.pick(text(10, "p"))
		choice.Booking.Release()
		if !slices.Equal(choice.Addrs, c.want) {
			t.Errorf("u %g: %v, want %v", c.u, choice.Addrs, c.want)
		}
		p.Cleared(a) // forget that it was sent there
	}
	for i, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		p.SetRouting(policy.Routing{
			OverlapWeight: odd, MissWeight: odd, Temperature: odd, BlockBytes: 8, Tiers: policy.Tiers{Host: odd, Disk: odd, Shared: odd},
			ActiveWeight: odd, CreditDecay: odd, AffinityWeight: odd, Busy: policy.Busy{DecodeShare: odd}, Split: policy.Split{CachedShare: odd},
		})
		p.Reported(a, 0, Report{At: p.now.Add(time.Duration(i) * time.Second), CacheUsed: odd, Running: math.MinInt, Waiting: -1})
		if choice := p.pick(text(10, "p")); len(choice.Addrs) != 3 || strings.Contains(choice.Explain(), "NaN") {
			t.Errorf("weight and temperature %g: %v", odd, choice.Addrs)
		}
	}
}

func TestSetRouting(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a, b)
	prompt := text(8, "p")
	p.pick(prompt, a)
	p.SetRouting(policy.Routing{OverlapWeight: 2, BlockBytes: 8})
	if choice := p.pick(prompt, a); choice.Overlap != 8 || !strings.Contains(choice.Explain(), "cost = 2 ×") {
		t.Errorf("another weight: overlap %d\n%s", choice.Overlap, choice.Explain())
	}
	p.SetRouting(policy.Routing{OverlapWeight: 2, BlockBytes: 16})
	if choice := p.pick(prompt, a); choice.Overlap != 0 || choice.Blocks != 4 {
		t.Errorf("another block size: overlap %d of %d, want 0 of 4", choice.Overlap, choice.Blocks)
	}
	if choice := p.pick(prompt, a); choice.Overlap != 4 {
		t.Errorf("then: overlap %d, want 4", choice.Overlap)
	}
}

func TestCandidatesAreFew(t *testing.T) {
	p := newPool(t, Config{Candidates: 2}, a, b, c)
	if choice := p.pick(""); len(choice.Addrs) != 2 || strings.Count(choice.Explain(), "\n") != 4 {
		t.Errorf("%v\n%s", choice.Addrs, choice.Explain())
	}
	p.set(a, a, b, a)
	if got := len(p.Load()); got != 2 {
		t.Errorf("%d workers of two addresses", got)
	}
}

func TestThePromptIsNotKept(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a)
	prompt := []byte(text(10, "p"))
	first, err := p.Pick(p.now, Ask{Prompt: prompt})
	if err != nil || first.Overlap != 0 {
		t.Fatal(first, err)
	}
	copy(prompt, bytes.Repeat([]byte("!"), len(prompt)))
	if choice := p.pick(text(10, "p")); choice.Overlap != 10 {
		t.Errorf("overlap %d after the caller reused its buffer", choice.Overlap)
	}
}
