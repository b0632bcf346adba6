package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// Choice is the answer to an Ask.
type Choice struct {
	// Addrs are the worker chosen and then others to try, best first; at most Config.Candidates.
	Addrs []string
	// Ranks are the data-parallel ranks of each of Addrs; -1: it has but one.
	Ranks []int
	// Prefill is the worker that is to compute the prompt for the one chosen, and its rank, -1 where it has but one. Empty: none
	// is, the one chosen does it by itself. It is booked too, until the first byte.
	Prefill     string
	PrefillRank int
	// Overlap is how many of the prompt's Blocks the chosen worker is believed to hold.
	Overlap, Blocks int
	// Guessed is Overlap by what was sent there alone. Waits says that some of that has no first byte yet: more may be held by
	// the time that this prompt's turn comes.
	Guessed int
	Waits   bool
	// Announced says that the chosen worker announces what it holds and the prompt's text is known, and Held what it announced
	// of the prompt, in the engine's own blocks. Otherwise, or where that is Doubted, Overlap is a guess. Best is the most that
	// any eligible worker announced.
	Announced, Doubted bool
	Held, Best         blocktree.Held
	// Booking of the chosen worker; must be released, however the request ends.
	Booking *Booking

	how   *policy.Routing
	all   []candidate // by address
	order []int       // Addrs, as places in all
}

// rank fills order and Addrs.
func (c *Choice) rank(temperature float64, cfg Config) {
	first := -1
	if temperature > 0 {
		first = draw(c.all, temperature, cfg.Rand())
	}
	c.order = best(c.all, cfg.Candidates, first)
	c.Addrs = make([]string, len(c.order))
	for i, k := range c.order {
		c.Addrs[i] = c.all[k].w.addr
	}
}

// Explain says in text what each eligible worker would have cost, one line a worker, the cheapest first:
//
//	10 blocks; cost = 1 × prefill + decode
//	10.0.0.2:8000: overlap 5, prefill 5, decode 5, requests 1, cost 10 (chosen)
//	10.0.0.3:8000: overlap 8, prefill 2, decode 9, requests 1, cost 11
func (c Choice) Explain() string {
	if len(c.order) == 0 {
		return "no choice\n"
	}
	places := make([]int, len(c.all))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int {
		return cmp.Or(c.all[a].compare(&c.all[b]), cmp.Compare(a, b))
	})
	var b strings.Builder
	formula := "prefill"
	if c.how.MissWeight > 0 {
		formula = fmt.Sprintf("(prefill + %g × missing)", c.how.MissWeight)
	}
	fmt.Fprintf(&b, "%d blocks; cost = %g × %s + decode\n", c.Blocks, c.how.OverlapWeight, formula)
	for _, i := range places {
		k := &c.all[i]
		fmt.Fprintf(&b, "%s: overlap %d, prefill %d, decode %d, requests %d, cost %g", k.w.addr, k.held, k.prefill, k.load.decode, k.load.requests, k.cost)
		if k.feed != nil {
			fmt.Fprintf(&b, ", announced %d blocks of %d bytes", k.announced.Blocks, k.announced.Bytes)
			if k.doubted {
				b.WriteString(", not believed")
			}
		}
		if i == c.order[0] {
			b.WriteString(" (chosen)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
