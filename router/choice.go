package router

import (
	"slices"
	"strconv"
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

	how      *policy.Routing
	all      []candidate // that may answer, by name; once the choice is made, those kept of them
	rest     int         // how many are not kept
	order    []int       // Addrs, as places in all
	near     []int       // the cheapest, while the choice is made
	prefills []candidate // that may compute the prompt for them, by name; nil: none was asked for
	prefill  int         // Prefill, as a place in prefills; -1: none
}

// RankList tells each worker that is named the rank that is to serve there: "ip:port=rank,ip:port=rank"; empty: none has several.
func (c *Choice) RankList() string {
	var list []string
	add := func(addr string, rank int) {
		if rank >= 0 {
			list = append(list, addr+"="+strconv.Itoa(rank))
		}
	}
	for i, rank := range c.Ranks {
		add(c.Addrs[i], rank)
	}
	if c.Prefill != "" {
		add(c.Prefill, c.PrefillRank)
	}
	return strings.Join(list, ",")
}

// rank fills all, order, Addrs and Ranks, and where the prompt may be computed by another, who that is.
func (c *Choice) rank(v *view, split bool) error {
	r, temperature := v.r, v.how.Temperature
	if n := len(r.workers) + len(r.prefills); cap(v.s.candidates) < n {
		v.s.candidates = make([]candidate, 0, n)
	}
	cs := v.see(v.s.candidates[:0], r.workers)
	c.all, c.prefill, c.Best = cs, -1, v.best
	if len(cs) == 0 {
		return ErrNoneEligible
	}
	if split {
		c.prefills = v.see(cs, r.prefills)[len(cs):]
		v.elsewhere(c.prefills, temperature)
		v.split(cs, c.prefills)
	}
	c.near = cheapest(cs, max(explained, r.cfg.Candidates))
	at := c.near[0]
	if temperature > 0 {
		at = draw(cs, temperature, r.cfg.Rand())
	}
	if at < 0 || cs[at].busy != notBusy {
		return r.busy(cs, v.how, v.share)
	}
	if v.oneRank {
		c.order = sameRank(cs, r.cfg.Candidates, at)
	} else {
		c.order = best(cs, c.near, r.cfg.Candidates, at)
	}
	c.Addrs, c.Ranks = make([]string, len(c.order)), make([]int, len(c.order))
	for i, k := range c.order {
		c.Addrs[i], c.Ranks[i] = cs[k].w.addr, cs[k].w.told()
	}
	if cs[at].split {
		c.prefill = v.other(cs[at].w)
		k := &c.prefills[c.prefill]
		c.Prefill, c.PrefillRank = k.w.addr, k.w.told()
	}
	return nil
}

// first is the place of the one chosen; -1: all are busy, or there is none.
func first(cs []candidate, temperature float64, cfg Config) int {
	if temperature > 0 {
		return draw(cs, temperature, cfg.Rand())
	}
	at := -1
	for i := range cs {
		if cs[i].busy == notBusy && (at < 0 || cs[i].compare(&cs[at]) < 0) {
			at = i
		}
	}
	return at
}

// tell fills in what is known of the worker chosen, before the request is booked there. known: all of the prompt's text is. What
// an engine reports of a prompt that another has computed for it says nothing of what it announced.
func (c *Choice) tell(v *view, known bool) {
	best := &c.all[c.order[0]]
	c.Overlap, c.Guessed = int(best.held), int(best.guessed)
	if feed := best.w.feed; feed != nil {
		c.Announced, c.Doubted, c.Held = known && c.Prefill == "", feed.doubted, v.found(best.w).Held()
	}
}

// keep makes the choice independent of the scratch that it was made in. Of many candidates only the cheapest are kept, to be
// explained: a thousand are a quarter of a megabyte.
func (c *Choice) keep(v *view, whole bool) {
	var chosen []int
	if c.prefill >= 0 {
		chosen = []int{c.prefill}
	}
	c.prefills, _, chosen = v.kept(c.prefills, cheapest(c.prefills, explained), chosen, whole)
	if c.prefill >= 0 {
		c.prefill = chosen[0]
	}
	c.all, c.rest, c.order = v.kept(c.all, c.near, c.order, whole)
	c.near = nil
}

// explained candidates are kept of a pick.
const explained = 16

// kept copies some candidates, in their order: those near and those named, or the whole; and says where those named are then.
func (v *view) kept(cs []candidate, near, named []int, whole bool) (some []candidate, rest int, at []int) {
	places := near
	for _, k := range named {
		if !slices.Contains(places, k) {
			places = append(places, k)
		}
	}
	if whole {
		places = places[:0]
		for k := range cs {
			places = append(places, k)
		}
	}
	slices.Sort(places)
	some = make([]candidate, len(places))
	whys := make([]why, len(places))
	for i, k := range places {
		some[i], whys[i] = cs[k], v.why(&cs[k])
		some[i].why = &whys[i]
	}
	for _, k := range named {
		i, _ := slices.BinarySearch(places, k)
		at = append(at, i)
	}
	return some, len(cs) - len(some), at
}
