package router

import (
	"cmp"
	"math"
	"slices"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// cost of a worker, in blocks, for a prompt of as many of which it has credit for some. queued are those that wait there to be
// computed, decode those in use.
//
// The conversions keep the compiler from fusing two steps, so that equal loads cost the same everywhere.
func cost(how *policy.Routing, blocks int, credit float64, l *load) float64 {
	missing := float64(blocks) - credit
	prefill := missing + float64(l.prefill) + float64(how.MissWeight*missing)
	return float64(how.OverlapWeight*prefill) + float64(l.decode) + float64(how.ActiveWeight*float64(l.requests))
}

// moved is the cost of one that has the prompt computed by another, at what that costs. What it does not hold is brought to it,
// and a block that is brought counts as one in use.
func moved(how *policy.Routing, elsewhere float64, missing int, l load) float64 {
	here := float64(how.OverlapWeight*float64(l.prefill)) + float64(l.decode) + float64(how.ActiveWeight*float64(l.requests))
	return elsewhere + here + float64(missing)
}

// credit is what blocks that are held count, under load: it falls as the worker has more requests, for the next ones are to find
// their blocks elsewhere, too.
func credit(how *policy.Routing, held, requests int) float64 {
	if how.CreditDecay == 0 {
		return float64(held)
	}
	return float64(held) / (1 + float64(how.CreditDecay*float64(requests)))
}

// candidate is a worker as one pick sees it.
type candidate struct {
	w       *worker
	cost    float64
	last    uint64 // the latest pick that chose it
	load    load   // before the pick, with others'
	held    int32  // blocks of the prompt that it need not compute
	guessed int32  // of held
	pooled  int32  // of held: credit for what is in the shared pool
	busy    threshold
	split   bool // another is to compute the prompt
	stays   bool // it served the session last

	why *why // nil: it is not kept
}

// why is the rest of what a candidate is explained by.
type why struct {
	rank      int  // -1: it has but one
	others    load // of load
	use       use
	feed      bool // it announces what it holds
	doubted   bool
	announced blocktree.Held
}

// compare orders by whether they are busy, by cost, then requests, then who was picked longest ago.
func (c *candidate) compare(o *candidate) int {
	if (c.busy != notBusy) != (o.busy != notBusy) {
		if c.busy != notBusy {
			return 1
		}
		return -1
	}
	switch { // costs are numbers
	case c.cost < o.cost:
		return -1
	case c.cost > o.cost:
		return 1
	case c.load.requests != o.load.requests:
		return cmp.Compare(c.load.requests, o.load.requests)
	}
	return cmp.Compare(c.last, o.last)
}

// best gives up to n candidates in order, as places in cs, of each address its best rank; first, if not negative, comes before
// all. Equals stay in the order of cs. near are the first of them all, in order.
func best(cs []candidate, near []int, n, first int) []int {
	order := make([]int, 0, min(n, len(cs))+1)
	if first >= 0 {
		order = append(order, first)
	}
	for _, i := range near {
		if len(order) < n && !slices.ContainsFunc(order, func(k int) bool { return cs[k].w.addr == cs[i].w.addr }) {
			order = append(order, i)
		}
	}
	if len(order) < min(n, len(cs)) && len(near) < len(cs) { // few addresses of many ranks
		return best(cs, cheapest(cs, min(8*len(near), len(cs))), n, first)
	}
	return order
}

// sameRank gives first and then, in order, up to n in all of those that have its rank, as places in cs. An address has but one such.
func sameRank(cs []candidate, n, first int) []int {
	order := append(make([]int, 0, min(n, len(cs))+1), first)
	for i := range cs {
		if i == first || cs[i].w.rank != cs[first].w.rank {
			continue
		}
		at := len(order)
		for at > 1 && cs[i].compare(&cs[order[at-1]]) < 0 {
			at--
		}
		if at < n {
			order = slices.Insert(order, at, i)
			order = order[:min(len(order), n)]
		}
	}
	return order
}

// cheapest gives the places of the n first of cs, in order.
func cheapest(cs []candidate, n int) []int {
	order := make([]int, 0, min(n, len(cs))+1)
	for i := range cs {
		at := len(order)
		if at == n {
			if worst := &cs[order[n-1]]; worst.busy == notBusy && (cs[i].cost > worst.cost || cs[i].cost == worst.cost && cs[i].last > worst.last && cs[i].load.requests >= worst.load.requests) {
				continue // nearly always, and quicker than compare
			}
		}
		for at > 0 && cs[i].compare(&cs[order[at-1]]) < 0 {
			at--
		}
		if at < n {
			order = slices.Insert(order, at, i)
			order = order[:min(len(order), n)]
		}
	}
	return order
}

// draw picks a candidate that is not busy by softmax over the negative costs, min-max-normalised. u is uniform in [0, 1).
func draw(cs []candidate, temperature, u float64) int {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range cs {
		if cs[i].busy == notBusy {
			low, high = math.Min(low, cs[i].cost), math.Max(high, cs[i].cost)
		}
	}
	weight := func(i int) float64 {
		switch {
		case cs[i].busy != notBusy:
			return 0
		case low == high:
			return 1 // equal costs: equal chances
		}
		return math.Exp(-(cs[i].cost - low) / (high - low) / temperature)
	}
	var sum float64
	for i := range cs {
		sum += weight(i) // at least 1: the cheapest
	}
	u *= sum
	last := -1
	for i := range cs {
		w := weight(i)
		if w == 0 {
			continue
		}
		if last, u = i, u-w; u < 0 {
			return i
		}
	}
	return last // rounding
}
