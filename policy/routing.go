package policy

import policyv1 "github.com/spokegate/spokegate/api/policy/v1"

// What an endpoint's routing has of itself.
const (
	DefaultOverlapWeight = 16.0
	DefaultMissWeight    = 1.0
	defBlock             = 64
)

// Defaults of the parts of a routing. A worker is never too busy by itself: what a fleet can bear is for its operator to say.
var (
	DefaultTiers = Tiers{Host: 0.75, Disk: 0.25, Shared: 0.5}
	DefaultSplit = Split{MinTokens: 512, CachedShare: 0.9}
)

// routing checks an endpoint's settings. 0 is said by a number where it means something; counts are left out instead.
func (c *checker) routing(r *policyv1.Routing, path string) {
	if r == nil {
		return
	}
	c.number(r, path, "overlap_weight", r.OverlapWeight, MaxWeight)
	c.number(r, path, "miss_weight", r.MissWeight, MaxWeight)
	c.number(r, path, "temperature", r.Temperature, MaxWeight)
	if b := r.BlockBytes; b != nil && (*b < MinBlock || *b > MaxBlock) {
		c.add(r, path, "block_bytes", -1, "want a whole number from %d to %d", MinBlock, MaxBlock)
	}
	c.number(r, path, "active_weight", r.ActiveWeight, MaxWeight)
	c.number(r, path, "credit_decay", r.CreditDecay, MaxWeight)
	c.number(r, path, "affinity_weight", r.AffinityWeight, MaxWeight)
	if t := r.Tiers; t != nil {
		at := join(path, "tiers")
		c.number(t, at, "host", t.Host, 1)
		c.number(t, at, "disk", t.Disk, 1)
		c.number(t, at, "shared", t.Shared, 1)
	}
	if b := r.Busy; b != nil {
		at := join(path, "busy")
		c.number(b, at, "decode_share", b.DecodeShare, 1)
		c.maybeCount(b, at, "prefill_tokens", b.PrefillTokens)
		c.maybeCount(b, at, "queue", b.Queue)
	}
	if s := r.Split; s != nil {
		at := join(path, "split")
		c.maybeCount(s, at, "min_tokens", s.MinTokens)
		c.number(s, at, "cached_share", s.CachedShare, 1)
	}
}

func (c *checker) number(owner any, path, field string, f *float64, most float64) {
	if f != nil && !within(*f, 0, most) {
		c.add(owner, path, field, -1, "want a number from 0 to %g", most)
	}
}

func (c *checker) maybeCount(owner any, path, field string, n *uint32) {
	if n != nil {
		c.count(owner, path, field, *n)
	}
}

// within is false for NaN.
func within(f, low, high float64) bool { return f >= low && f <= high }

// compileRouting applies the defaults.
func compileRouting(r *policyv1.Routing) Routing {
	if r == nil {
		r = &policyv1.Routing{}
	}
	t, s := r.Tiers, r.Split
	if t == nil {
		t = &policyv1.Tiers{}
	}
	if s == nil {
		s = &policyv1.Split{}
	}
	return Routing{
		OverlapWeight: orElse(r.OverlapWeight, DefaultOverlapWeight), MissWeight: orElse(r.MissWeight, DefaultMissWeight),
		Temperature: r.GetTemperature(), BlockBytes: int(orElse(r.BlockBytes, defBlock)),
		Tiers: Tiers{
			Host: orElse(t.Host, DefaultTiers.Host), Disk: orElse(t.Disk, DefaultTiers.Disk), Shared: orElse(t.Shared, DefaultTiers.Shared),
		},
		ActiveWeight: r.GetActiveWeight(), CreditDecay: r.GetCreditDecay(), AffinityWeight: r.GetAffinityWeight(),
		Busy: Busy{
			DecodeShare: r.GetBusy().GetDecodeShare(), PrefillTokens: int(r.GetBusy().GetPrefillTokens()), Queue: int(r.GetBusy().GetQueue()),
		},
		Split: Split{
			MinTokens: int(orElse(s.MinTokens, uint32(DefaultSplit.MinTokens))), CachedShare: orElse(s.CachedShare, DefaultSplit.CachedShare),
		},
	}
}

func orElse[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
