package follow

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// stage is what has come of a revision before its end.
type stage struct {
	base     *policy.Cut // upon which it is made
	revision string      // which it is, as its responses say; "": nothing has come yet
	changed  []policy.Resource
	removed  []policy.Ref
}

// newStage is an empty one upon a cut; nil: upon nothing.
func newStage(base *policy.Cut) *stage {
	if base == nil {
		base = policy.NewCut(&policyv1.Set{})
	}
	return &stage{base: base}
}

// add takes a response with resources. One of another revision than before begins anew: the one before was given up.
func (s *stage) add(r *discoveryv3.DeltaDiscoveryResponse) error {
	kind := delta.Kind(r.GetTypeUrl())
	if kind == "" {
		return fmt.Errorf("resources of a type that was not asked for: %.100q", r.GetTypeUrl())
	}
	s.of(r.GetSystemVersionInfo())
	for _, in := range r.GetResources() {
		if in.GetResource().GetTypeUrl() != r.GetTypeUrl() {
			return fmt.Errorf("%s %.100q is of another type: %.100q", kind, in.GetName(), in.GetResource().GetTypeUrl())
		}
		made := policy.NewResource(kind, in.GetName(), in.GetResource().GetValue())
		if made.Version != in.GetVersion() {
			return fmt.Errorf("%s %.100q was changed on the way: its content has the version %s, and goes by %.100s", kind, in.GetName(), made.Version, in.GetVersion())
		}
		s.changed = append(s.changed, made)
	}
	for _, name := range r.GetRemovedResources() {
		s.removed = append(s.removed, policy.Ref{Kind: kind, Name: name})
	}
	return nil
}

func (s *stage) of(revision string) {
	if s.revision != revision {
		s.revision, s.changed, s.removed = revision, nil, nil
	}
}

// close is the cut that a Revision closes, and the digest that it must have.
func (s *stage) close(r *discoveryv3.DeltaDiscoveryResponse) (*policy.Cut, []byte, error) {
	if len(r.GetResources()) != 1 {
		return nil, nil, fmt.Errorf("%d revisions came at once: want one", len(r.GetResources()))
	}
	revision, err := delta.ReadRevision(r.GetResources()[0].GetResource().GetValue())
	if err != nil {
		return nil, nil, err
	}
	s.of(r.GetSystemVersionInfo())
	return s.base.Next(revision, s.changed, s.removed), revision.GetDigest(), nil
}
