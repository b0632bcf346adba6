package router

import (
	"cmp"
	"math"
	"slices"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// cost of a worker, in blocks: missing ones of this prompt, those that are waiting there to be computed, and those in decode.
func cost(how *policy.Routing, missing, queued, decode int) float64 {
	// The conversions keep the compiler from fusing two steps, so that equal loads cost the same everywhere.
	prefill := float64(missing+queued) + float64(how.MissWeight*float64(missing))
	return float64(how.OverlapWeight*prefill) + float64(decode)
}

// candidate is a worker as one pick sees it.
type candidate struct {
	w        *worker
	held     int // blocks of the prompt
	prefill  int // blocks, with this prompt's
	cost     float64
	load     load // before the pick
	lastPick uint64

	guessed   int            // blocks, of held
	feed      *Feed          // nil: what it holds is guessed
	doubted   bool           // the feed
	announced blocktree.Held // by the feed
}

// compare orders by cost, then requests, then who was picked longest ago.
func (c *candidate) compare(o *candidate) int {
	return cmp.Or(
		cmp.Compare(c.cost, o.cost),
		cmp.Compare(c.load.requests, o.load.requests),
		cmp.Compare(c.lastPick, o.lastPick),
	)
}

// best gives up to n candidates in order, as places in cs; first, if not negative, comes before all. Equals stay in the
// order of cs.
func best(cs []candidate, n, first int) []int {
	order := make([]int, 0, min(n, len(cs)))
	if first >= 0 {
		order = append(order, first)
	}
	for len(order) < cap(order) {
		next := -1
		for i := range cs {
			if !slices.Contains(order, i) && (next < 0 || cs[i].compare(&cs[next]) < 0) {
				next = i
			}
		}
		order = append(order, next)
	}
	return order
}

// draw picks a candidate by softmax over the negative costs, min-max-normalised. u is uniform in [0, 1).
func draw(cs []candidate, temperature, u float64) int {
	low, high := cs[0].cost, cs[0].cost
	for i := range cs {
		low, high = math.Min(low, cs[i].cost), math.Max(high, cs[i].cost)
	}
	weight := func(i int) float64 {
		if low == high {
			return 1 // equal costs: equal chances
		}
		return math.Exp(-(cs[i].cost - low) / (high - low) / temperature)
	}
	var sum float64
	for i := range cs {
		sum += weight(i) // at least 1: the cheapest
	}
	u *= sum
	for i := range cs {
		if u -= weight(i); u < 0 {
			return i
		}
	}
	return len(cs) - 1 // rounding
}
