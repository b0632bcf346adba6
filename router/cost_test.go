package router

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

func of(costs ...float64) []candidate {
	cs := make([]candidate, len(costs))
	for i, c := range costs {
		cs[i].cost, cs[i].w = c, &worker{name: name{fmt.Sprint("10.0.0.", i, ":1"), 0}}
	}
	return cs
}

// The worked example: (8, 10) costs 18, (5, 5) 10, (2, 9) 11.
func TestCost(t *testing.T) {
	for _, c := range []struct {
		weight          float64
		prefill, decode int
		want            float64
	}{
		{1, 8, 10, 18}, {1, 5, 5, 10}, {1, 2, 9, 11},
		{0, 8, 10, 10}, {2, 5, 5, 15}, {0.5, 3, 0, 1.5}, {1e9, 0, 7, 7}, {1, 0, 0, 0},
	} {
		if got := cost(&policy.Routing{OverlapWeight: c.weight}, c.prefill, 0, &load{decode: c.decode}); got != c.want {
			t.Errorf("cost(%v, %d, %d) = %v, want %v", c.weight, c.prefill, c.decode, got, c.want)
		}
	}
}

// With a miss weight of 1, waiting behind 10 blocks costs as much as computing 5 anew.
func TestCostOfMissing(t *testing.T) {
	for _, c := range []struct {
		miss                    float64
		missing, queued, decode int
		want                    float64
	}{
		{0, 5, 0, 3, 13}, {1, 5, 0, 0, 20}, {1, 0, 10, 0, 20}, {1, 0, 0, 7, 7}, {1, 1, 2, 3, 11}, {0.5, 4, 1, 1, 15}, {3, 2, 2, 0, 20},
	} {
		if got := cost(&policy.Routing{OverlapWeight: 2, MissWeight: c.miss}, c.missing, 0, &load{prefill: c.queued, decode: c.decode}); got != c.want {
			t.Errorf("miss weight %v, cost(%d, %d, %d) = %v, want %v", c.miss, c.missing, c.queued, c.decode, got, c.want)
		}
	}
}

func TestBest(t *testing.T) {
	cs := of(3, 1, 2, 1, 1)
	cs[1].load.requests = 2
	cs[3].last = 9
	cs[4].last = 8
	for _, c := range []struct {
		n, first int
		want     []int
	}{
		{5, -1, []int{4, 3, 1, 2, 0}},
		{2, -1, []int{4, 3}},
		{3, 0, []int{0, 4, 3}},
		{9, 2, []int{2, 4, 3, 1, 0}},
		{1, 1, []int{1}},
	} {
		if got := best(cs, cheapest(cs, 1), c.n, c.first); !slices.Equal(got, c.want) {
			t.Errorf("best %d, first %d: %v, want %v", c.n, c.first, got, c.want)
		}
	}
}

// Chances are compared with the formula by walking u evenly through [0, 1).
func TestDraw(t *testing.T) {
	const n = 100_000
	e := func(x float64) float64 { return math.Exp(-x) }
	for _, c := range []struct {
		name        string
		cs          []candidate
		temperature float64
		weights     []float64
	}{
		{"one worker", of(7), 1, []float64{1}},
		{"one worker that costs nothing", of(0), 0.1, []float64{1}},
		{"equal costs", of(5, 5, 5, 5), 0.01, []float64{1, 1, 1, 1}},
		{"two", of(10, 20), 1, []float64{1, e(1)}},
		{"scale does not matter", of(1e6, 2e6), 1, []float64{1, e(1)}},
		{"three", of(18, 10, 11), 0.5, []float64{e(2), 1, e(0.25)}},
		{"cold", of(18, 10, 11), 1e-300, []float64{0, 1, 0}},
		{"hot", of(18, 10, 11), 1e9, []float64{1, 1, 1}},
	} {
		var sum float64
		for _, w := range c.weights {
			sum += w
		}
		got := make([]int, len(c.cs))
		for i := range n {
			got[draw(c.cs, c.temperature, float64(i)/n)]++
		}
		for i, w := range c.weights {
			if diff := float64(got[i])/n - w/sum; math.Abs(diff) > 1e-4 {
				t.Errorf("%s: worker %d drawn %d times of %d, off by %g", c.name, i, got[i], n, diff)
			}
		}
		if last := draw(c.cs, c.temperature, math.Nextafter(1, 0)); last < 0 || last >= len(c.cs) {
			t.Errorf("%s: %d drawn at the end of the range", c.name, last)
		}
	}
}

func TestSane(t *testing.T) {
	for in, want := range map[float64]float64{-1: 0, 0: 0, 0.5: 0.5, math.Inf(1): 1e9, math.Inf(-1): 0, 1e300: 1e9} {
		if got := sane(in); got != want {
			t.Errorf("sane(%v) = %v, want %v", in, got, want)
		}
	}
	if got := sane(math.NaN()); got != 0 {
		t.Errorf("sane(NaN) = %v", got)
	}
}
