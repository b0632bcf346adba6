package hub

import (
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// spokeCut is what a spoke got last. own outlives a revision and holds nothing of it but models and endpoints, so that a spoke
// that is away keeps no old keys in memory.
type spokeCut struct {
	layout *layout
	own    *policy.Cut // models and endpoints, of the layout
	of     *state      // nil: whole is none
	whole  *policy.Cut
}

// Cut is what a spoke gets of the latest revision; nil: there is none yet, or no such spoke. Platform, teams, issuers and all
// keys are the same for all spokes, and shared in memory; endpoints are its own only; models that are served elsewhere say where,
// so that teams may name them and whoever asks for one is told.
func (h *Hub) Cut(spoke string) *policy.Cut {
	h.cutsMu.Lock()
	defer h.cutsMu.Unlock()
	st := h.state.Load()
	if !st.hasSpoke(spoke) {
		delete(h.cuts, spoke)
		return nil
	}
	c := h.cuts[spoke]
	if c.of == st {
		return c.whole
	}
	if c.layout != st.layout {
		c.layout, c.own = st.layout, (&policy.Cut{}).With(st.cutFor(spoke), policy.KindModel, policy.KindEndpoint)
	}
	c.of, c.whole = st, st.cut.With(c.own, policy.KindModel, policy.KindEndpoint)
	h.cuts[spoke] = c
	return c.whole
}

// dropCuts lets go of what is of an older state.
func (h *Hub) dropCuts() {
	h.cutsMu.Lock()
	defer h.cutsMu.Unlock()
	for spoke, c := range h.cuts {
		c.of, c.whole = nil, nil
		h.cuts[spoke] = c
	}
}

// cutFor makes a spoke's cut of that of all.
func (s *state) cutFor(spoke string) *policy.Cut {
	var changed []policy.Resource
	var removed []policy.Ref
	for name, e := range s.layout.endpoints {
		if e.spoke != spoke {
			removed = append(removed, policy.Ref{Kind: policy.KindEndpoint, Name: name})
		}
	}
	for name, m := range s.layout.models {
		if at := s.layout.spokeOf(name); at != spoke {
			changed = append(changed, policy.Encode(policy.KindModel, name, elsewhere(m, at)))
		}
	}
	return s.cut.Next(s.cut.Revision(), changed, removed)
}

// elsewhere is a model as other spokes than its own know it.
func elsewhere(m *policyv1.Model, spoke string) *policyv1.Model {
	out := proto.CloneOf(m)
	out.Endpoint, out.Targets, out.Elsewhere = "", nil, spoke
	return out
}
