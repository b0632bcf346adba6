package router

import (
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// view is how one pick sees the workers.
type view struct {
	r      *Router
	how    *policy.Routing
	blocks int // of the prompt
	s      *scratch
	only   *subset
	share  float64 // of each busy threshold
	stays  *worker // that served the session last; nil: not known, or of no account
}

// see appends those of some workers that are eligible, with what each would cost.
func (v *view) see(cs []candidate, of []*worker) []candidate {
	pool := v.s.walk.Of(blocktree.Pool).Bytes
	thresholds := v.how.Busy != policy.Busy{}
	for _, w := range of {
		if !v.only.has(w.place) {
			continue
		}
		cs = append(cs, candidate{w: w, told: w.told(), last: w.last, feed: w.feed, stays: v.stays == w})
		c := &cs[len(cs)-1]
		c.others = w.others(v.r.clock, v.how.BlockBytes, v.r.missing)
		c.load = w.load
		c.load.add(c.others)
		v.holds(c, pool)
		if thresholds {
			c.use = w.use(v.r.clock, v.how, c.others)
			c.busy = c.use.beyond(v.how.Busy, v.share)
		}
		c.cost = cost(v.how, v.blocks, credit(v.how, c.held, c.load.requests), c.load) - v.affinity(c)
	}
	return cs
}

// holds says how much of the prompt a candidate need not compute: by what it announced, or was sent; and beyond that, as far as the
// shared pool goes on, what that is worth.
func (v *view) holds(c *candidate, pool int) {
	c.guessed = min(int(v.s.held[c.w.slot]), v.blocks)
	c.held = c.guessed
	deep := c.guessed
	if c.feed != nil {
		c.announced, c.doubted = v.s.walk.Of(c.feed.slot), c.feed.doubted
		if !c.doubted {
			c.held = max(c.held, min(worth(c.announced, v.how), v.blocks))
			deep = max(deep, c.announced.Bytes/v.how.BlockBytes)
		}
	}
	if more := pool/v.how.BlockBytes - deep; more > 0 {
		c.pooled = min(int(v.how.Tiers.Shared*float64(more)), v.blocks-c.held)
		c.held += c.pooled
	}
}

// affinity is what a candidate is preferred by, in blocks. What staying is worth grows with the conversation, so it is a share of
// the prompt.
func (v *view) affinity(c *candidate) float64 {
	if !c.stays {
		return 0
	}
	return float64(v.how.AffinityWeight * float64(v.blocks))
}

// split decides which candidates would have the prompt computed by another worker, at what that costs, and what they cost then:
// those in the role of decode that lack much of it, in tokens and as a share. A short prompt, or one that is mostly held, is done
// sooner where it is answered; a worker without a role does all by itself.
func (v *view) split(cs []candidate, elsewhere float64) {
	for i := range cs {
		c := &cs[i]
		missing := v.blocks - c.held
		c.split = c.w.role == RoleDecode &&
			missing*v.how.BlockBytes >= v.how.Split.MinTokens*tokenBytes &&
			float64(c.held) < float64(v.how.Split.CachedShare*float64(v.blocks))
		if c.split {
			c.cost = moved(v.how, elsewhere, missing, c.load) - v.affinity(c)
		}
	}
}
