package hub

import (
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// spokeCut is what a spoke got last, and of which state.
type spokeCut struct {
	of  *state
	cut *policy.Cut
}

// Cut is what a spoke gets of the latest revision; nil: there is none yet, or no such spoke. Platform, teams, issuers and all
// keys are the same for all spokes, and shared in memory; endpoints are its own only; models that are served elsewhere say where,
// so that teams may name them and whoever asks for one is told.
func (h *Hub) Cut(spoke string) *policy.Cut {
	st := h.state.Load()
	h.cutsMu.Lock()
	defer h.cutsMu.Unlock()
	if !st.hasSpoke(spoke) {
		delete(h.cuts, spoke)
		return nil
	}
	had := h.cuts[spoke]
	if had.of == st {
		return had.cut
	}
	var cut *policy.Cut
	if had.of != nil && had.of.layout == st.layout {
		cut = st.cut.With(had.cut, policy.KindModel, policy.KindEndpoint)
	} else {
		cut = st.cutFor(spoke)
	}
	h.cuts[spoke] = spokeCut{st, cut}
	return cut
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
