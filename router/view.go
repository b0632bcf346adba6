package router

import (
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// view is how one pick sees the workers.
type view struct {
	r       *Router
	how     *policy.Routing
	blocks  int // of the prompt
	s       *scratch
	only    *subset
	share   float64 // of each busy threshold
	oneRank bool    // all who are named must be of one rank
	stays   *worker // that served the session last; nil: not known, or of no account

	prefill   int   // who would compute the prompt, as a place among the prefills; -1: nobody
	prefillOf []int // the same by rank, where all must be of one

	best  blocktree.Held            // the most that one of those seen announced
	in    [blocktree.Nowhere]uint32 // what was announced last, and what it is worth
	worth int
}

// see appends those of some workers that are eligible, with what each would cost.
func (v *view) see(cs []candidate, of []*worker) []candidate {
	pool := 0
	if f := v.s.walk.Of(blocktree.Pool); f != nil {
		pool = int(f.Bytes()) / v.how.BlockBytes
	}
	var best *blocktree.Found
	thresholds := v.how.Busy != policy.Busy{}
	for _, w := range of {
		if v.only != nil && !v.only.has(w.place) {
			continue
		}
		cs = append(cs, candidate{})
		c := &cs[len(cs)-1]
		c.w, c.last, c.stays, c.load = w, w.last, v.stays == w, w.load
		var others load
		if !w.heard.At.IsZero() {
			others = w.others(v.r.clock, v.how.BlockBytes, v.r.missing)
			c.load.add(others)
		}
		found := v.found(w)
		if found != nil && (best == nil || found.Blocks > best.Blocks) {
			best = found
		}
		v.holds(c, found, pool)
		if thresholds {
			c.busy = w.use(v.r.clock, v.how, others).beyond(v.how.Busy, v.share)
		}
		c.cost = cost(v.how, v.blocks, credit(v.how, int(c.held), c.load.requests), &c.load) - v.affinity(c)
	}
	if held := best.Held(); held.Blocks > v.best.Blocks {
		v.best = held
	}
	return cs
}

// found is what a worker announced of the prompt; nil: nothing.
func (v *view) found(w *worker) *blocktree.Found {
	if w.feed == nil {
		return nil
	}
	return v.s.walk.Of(w.feed.slot)
}

// why is the rest of what a candidate is explained by.
func (v *view) why(c *candidate) why {
	w := c.w
	y := why{rank: w.told(), others: w.others(v.r.clock, v.how.BlockBytes, v.r.missing), announced: v.found(w).Held()}
	y.use = w.use(v.r.clock, v.how, y.others)
	if w.feed != nil {
		y.feed, y.doubted = true, w.feed.doubted
	}
	return y
}

// holds says how much of the prompt a candidate need not compute: by what it announced, or was sent; and beyond that, as far as the
// shared pool goes on, which is so many blocks, what that is worth.
func (v *view) holds(c *candidate, announced *blocktree.Found, pool int) {
	guessed := min(int(v.s.held[c.w.slot]), v.blocks)
	held, deep, pooled := guessed, guessed, 0
	if announced != nil && !c.w.feed.doubted {
		if announced.In != v.in { // many hold the same system prompt, and no more
			v.in, v.worth = announced.In, worth(announced, v.how)
		}
		held = max(held, min(v.worth, v.blocks))
	}
	if pool == 0 {
		c.guessed, c.held = int32(guessed), int32(held)
		return
	}
	if announced != nil && !c.w.feed.doubted {
		deep = max(deep, int(announced.Bytes())/v.how.BlockBytes)
	}
	if more := pool - deep; more > 0 {
		pooled = min(int(v.how.Tiers.Shared*float64(more)), v.blocks-held)
	}
	c.guessed, c.pooled, c.held = int32(guessed), int32(pooled), int32(held+pooled)
}

// affinity is what a candidate is preferred by, in blocks. What staying is worth grows with the conversation, so it is a share of
// the prompt.
func (v *view) affinity(c *candidate) float64 {
	if !c.stays {
		return 0
	}
	return float64(v.how.AffinityWeight * float64(v.blocks))
}

// elsewhere chooses who would compute the prompt for another. Where both must be of one rank, that is one for each rank, the cheapest.
func (v *view) elsewhere(prefills []candidate, temperature float64) {
	if !v.oneRank {
		v.prefill = first(prefills, temperature, v.r.cfg)
		return
	}
	for i := range prefills {
		k := &prefills[i]
		for len(v.prefillOf) <= k.w.rank {
			v.prefillOf = append(v.prefillOf, -1)
		}
		if at := v.prefillOf[k.w.rank]; k.busy == notBusy && (at < 0 || k.compare(&prefills[at]) < 0) {
			v.prefillOf[k.w.rank] = i
		}
	}
}

// other is who would compute a prompt that w answers, as a place among the prefills; -1: nobody.
func (v *view) other(w *worker) int {
	switch {
	case !v.oneRank:
		return v.prefill
	case w.rank < len(v.prefillOf):
		return v.prefillOf[w.rank]
	}
	return -1
}

// split decides which candidates would have the prompt computed by another worker, at what that costs, and what they cost then:
// those in the role of decode that lack much of it, in tokens and as a share. A short prompt, or one that is mostly held, is done
// sooner where it is answered; a worker without a role does all by itself.
func (v *view) split(cs, prefills []candidate) {
	for i := range cs {
		c := &cs[i]
		missing, other := v.blocks-int(c.held), v.other(c.w)
		c.split = c.w.role == RoleDecode && other >= 0 &&
			missing*v.how.BlockBytes >= v.how.Split.MinTokens*tokenBytes &&
			float64(c.held) < float64(v.how.Split.CachedShare*float64(v.blocks))
		if c.split {
			c.cost = moved(v.how, prefills[other].cost, missing, c.load) - v.affinity(c)
		}
	}
}
