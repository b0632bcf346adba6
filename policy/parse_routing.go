package policy

import policyv1 "github.com/spokegate/spokegate/api/policy/v1"

func (p *parse) routing(e *RoutingEntry) *policyv1.Routing {
	if e == nil {
		return nil
	}
	m := &policyv1.Routing{
		OverlapWeight: e.OverlapWeight, MissWeight: e.MissWeight, Temperature: e.Temperature, BlockBytes: e.BlockBytes,
		ActiveWeight: e.ActiveWeight, CreditDecay: e.CreditDecay, AffinityWeight: e.AffinityWeight,
	}
	p.moved(m, e)
	if t := e.Tiers; t != nil {
		m.Tiers = &policyv1.Tiers{Host: t.Host, Disk: t.Disk, Shared: t.Shared}
		p.moved(m.Tiers, t)
	}
	if b := e.Busy; b != nil {
		m.Busy = &policyv1.Busy{DecodeShare: b.DecodeShare, PrefillTokens: b.PrefillTokens, Queue: b.Queue}
		p.moved(m.Busy, b)
	}
	if s := e.Split; s != nil {
		m.Split = &policyv1.Split{MinTokens: s.MinTokens, CachedShare: s.CachedShare}
		p.moved(m.Split, s)
	}
	return m
}
