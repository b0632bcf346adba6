package replay

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
)

func blocks(from, to int32) (bs []int32) {
	for b := from; b < to; b++ {
		bs = append(bs, b)
	}
	return bs
}

// tiny has blocks of 100 tokens. With 100 tokens a second a block takes a second to compute, and every answer two seconds.
func tiny(requests ...Request) (*Trace, Options) {
	for i := range requests {
		requests[i].In, requests[i].Out = 100*len(requests[i].Blocks), 20
	}
	o := Defaults
	o.WarmUp, o.InTime = 0, 4
	o.Fleet.Workers, o.Fleet.CacheTokens, o.Fleet.Prefill, o.Fleet.Decode = 2, 1000, 100, 10
	return &Trace{Name: "tiny", BlockSize: 100, Requests: requests, Blocks: 100}, o
}

func replayed(t *testing.T, trace *Trace, way string, o Options) Result {
	t.Helper()
	r, err := Run(context.Background(), trace, way, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestByHand: by turns, the first goes to worker 1, the second to worker 0, and so on.
func TestByHand(t *testing.T) {
	trace, o := tiny(
		Request{At: 0, Session: 0, Blocks: blocks(0, 4)},                             // worker 1: 0 to 4 s
		Request{At: 1, Session: 1, Blocks: blocks(10, 13)},                           // worker 0: 1 to 4 s
		Request{At: 2, Session: 0, Blocks: blocks(0, 6)},                             // worker 1: waits till 4, computes 2 blocks: 6 s
		Request{At: 3, Session: 0, Blocks: blocks(0, 6)},                             // worker 0: waits till 4, holds none of it: 10 s
		Request{At: 9, Session: 0, Blocks: blocks(0, 6)},                             // worker 1: holds all, computes a token: 9.01 s
		Request{At: 20, Session: 0, Blocks: append(blocks(0, 2), blocks(20, 24)...)}, // worker 0: holds 2 blocks, computes 4: 24 s
	)
	r := replayed(t, trace, "round-robin", o)
	if want := []float64{0.01, 3, 4, 4, 4, 7}; !slices.EqualFunc(r.TTFTs, want, same) {
		t.Errorf("first tokens after %v, want %v", r.TTFTs, want)
	}
	// 3100 tokens; computed 400 + 300 + 200 + 600 + 1 + 400.
	if r.Requests != 6 || r.Prefilled != 1901 || !same(r.HitRate, 1199.0/3100) {
		t.Errorf("%d requests, %d computed, hit rate %v", r.Requests, r.Prefilled, r.HitRate)
	}
	// Worker 0 computed for 13 s, worker 1 for 6.01; five were in time, over 20 s.
	if !same(r.Imbalance, 13/(19.01/2)) || !same(r.Goodput, 5.0/20) || !same(r.TTFT50, 4) || !same(r.TTFT99, 7) {
		t.Errorf("imbalance %v, goodput %v, TTFT %v and %v", r.Imbalance, r.Goodput, r.TTFT50, r.TTFT99)
	}
	// Without bounds the fourth would be a hit, and the last one keeps its two blocks.
	if b := Bound(trace, o); b.Prefilled != 400+300+200+1+1+400 || !same(b.HitRate, 1-1302.0/3100) {
		t.Errorf("bound: %d computed, hit rate %v", b.Prefilled, b.HitRate)
	}
	// The router sends all of the session to where it is.
	for _, way := range []string{"predictive", "exact", "true-state"} {
		if r := replayed(t, trace, way, o); r.Prefilled != 1302 {
			t.Errorf("%s: %d computed", way, r.Prefilled)
		}
	}
}

// The warm-up is replayed, but not judged.
func TestWarmUp(t *testing.T) {
	trace, o := tiny(
		Request{At: 0, Blocks: blocks(0, 4)}, Request{At: 0, Blocks: blocks(0, 4)},
		Request{At: 10, Blocks: blocks(0, 5)}, Request{At: 20, Blocks: blocks(0, 5)},
	)
	o.WarmUp = 0.5
	if r := replayed(t, trace, "round-robin", o); r.Requests != 2 || r.Prefilled != 200 || !same(r.Goodput, 0.2) {
		t.Errorf("%+v", r)
	}
	if b := Bound(trace, o); b.Requests != 2 || b.Prefilled != 101 {
		t.Errorf("%+v", b)
	}
}

// A cache of 10 blocks keeps what was used last.
func TestEviction(t *testing.T) {
	trace, o := tiny(
		Request{At: 0, Blocks: blocks(0, 6)}, Request{At: 10, Blocks: blocks(20, 26)}, Request{At: 20, Blocks: blocks(0, 6)},
	)
	o.Fleet.Workers = 1
	// 6, 6, and of the first prompt four of six are left: its beginning.
	if r := replayed(t, trace, "round-robin", o); r.Prefilled != 1400 {
		t.Errorf("%d computed", r.Prefilled)
	}
}

// An announcement that comes late is worked around for as long as the router takes the prompt to be where it sent it.
func TestLateAnnouncements(t *testing.T) {
	requests := []Request{{At: 0, Blocks: blocks(0, 8)}, {At: 60, Blocks: blocks(0, 8)}, {At: 60.5, Blocks: blocks(30, 38)}, {At: 120, Blocks: blocks(30, 38)}}
	for i := range requests {
		requests[i].Session = i
	}
	trace, o := tiny(requests...)
	o.Fleet.Delay = 500
	late, truth := replayed(t, trace, "exact", o), replayed(t, trace, "true-state", o)
	if late.Prefilled <= truth.Prefilled || truth.Prefilled != 1602 {
		t.Errorf("late %d computed, in time %d", late.Prefilled, truth.Prefilled)
	}
}

func generatedTrace(t *testing.T, load Load) *Trace {
	t.Helper()
	trace, err := Generate(load)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestProperties hold for any load: no way hits more than the bound, and what the picker is told at once is the true state.
func TestProperties(t *testing.T) {
	for seed := range uint64(2) {
		load := Load{Rate: 0.15, Sessions: 6, Seed: seed}
		trace := generatedTrace(t, load)
		o := Defaults
		o.Fleet.Workers, o.Fleet.CacheTokens, o.Fleet.Delay = 3, 500_000, 0
		bound := Bound(trace, o)
		results := map[string]Result{}
		for _, way := range Ways {
			r := replayed(t, trace, way, o)
			if r.HitRate > bound.HitRate || r.HitRate < 0 || r.Prefilled < bound.Prefilled {
				t.Errorf("seed %d, %s: hit rate %v above the bound %v", seed, way, r.HitRate, bound.HitRate)
			}
			if r.Requests != bound.Requests || len(r.TTFTs) != r.Requests || !slices.IsSorted(r.TTFTs) || r.Imbalance < 1 {
				t.Errorf("seed %d, %s: %d requests of %d, imbalance %v", seed, way, r.Requests, bound.Requests, r.Imbalance)
			}
			results[way] = r
			r.Way = ""
		}
		exact := results["exact"]
		exact.Way = "true-state"
		if !reflect.DeepEqual(exact, results["true-state"]) {
			t.Errorf("seed %d: exact without delay %+v, true state %+v", seed, exact, results["true-state"])
		}
		again := replayed(t, generatedTrace(t, load), "exact", o)
		if again.Way = "true-state"; !reflect.DeepEqual(exact, again) {
			t.Errorf("seed %d: the same again gives other numbers", seed)
		}
	}
}

// TestKeepsWhatItPromises: the shape of the measurements in docs/routing.md, on a load that is quick to replay.
func TestKeepsWhatItPromises(t *testing.T) {
	trace := generatedTrace(t, Load{Rate: 0.6, Sessions: 25, Seed: 1})
	o := Defaults
	o.Fleet.Workers = 4
	results := map[string]Result{}
	for _, way := range []string{"round-robin", "exact", "true-state"} {
		results[way] = replayed(t, trace, way, o)
	}
	exact, truth, turns := results["exact"], results["true-state"], results["round-robin"]
	if exact.HitRate < 0.98*truth.HitRate || exact.TTFT99 > 1.1*truth.TTFT99 || 3*exact.Prefilled > turns.Prefilled {
		t.Errorf("exact %v\ntrue state %v\nby turns %v", summary(exact), summary(truth), summary(turns))
	}
	old := o
	old.Fleet.OverlapWeight, old.Fleet.MissWeight = 1, 0
	if r := replayed(t, trace, "exact", old); r.Prefilled < 2*exact.Prefilled {
		t.Errorf("where what is missing weighs no more than what is in decode, sessions wander: %v, else %v", summary(r), summary(exact))
	}
}

func summary(r Result) Result {
	r.TTFTs = nil
	return r
}

func TestRefusals(t *testing.T) {
	trace, o := tiny(Request{Blocks: blocks(0, 1)}, Request{Blocks: blocks(0, 1)})
	if _, err := Run(context.Background(), trace, "luck", o); err == nil || err.Error() != `way "luck": one of [round-robin least-load session-hash predictive exact true-state] expected` {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, trace, "exact", o); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"-workers: want a number from 1 to 10000":       func(o *Options) { o.Fleet.Workers = 0 },
		"-cache-tokens: want a number from 1 to 1e+12":  func(o *Options) { o.Fleet.CacheTokens = 0 },
		"-prefill: want a number from 0.001 to 1e+09":   func(o *Options) { o.Fleet.Prefill = math.NaN() },
		"-decode: want a number from 0.001 to 1e+09":    func(o *Options) { o.Fleet.Decode = 0 },
		"-delay: want a number from 0 to 1e+06":         func(o *Options) { o.Fleet.Delay = -1 },
		"-overlap-weight: want a number from 0 to 1000": func(o *Options) { o.Fleet.OverlapWeight = math.Inf(1) },
		"-miss-weight: want a number from 0 to 1000":    func(o *Options) { o.Fleet.MissWeight = -1 },
		"-warm-up: want a number from 0 to 0.99":        func(o *Options) { o.WarmUp = 1 },
		"-in-time: want a number from 0 to 1e+06":       func(o *Options) { o.InTime = math.NaN() },
	} {
		o := Defaults
		change(&o)
		if err := o.Check(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := Defaults.Check(); err != nil {
		t.Error(err)
	}
}
