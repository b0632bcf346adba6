package follow

import (
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// stage is what has come of a revision before its end.
type stage struct {
	base     *policy.Cut         // upon which it is made
	revision string              // which it is, as its responses say; "": nothing has come yet
	changed  [][]policy.Resource // of each response
	removed  []policy.Ref
	checks   *errgroup.Group // of long responses, beside what else comes
}

// newStage is an empty one upon a cut; nil: upon nothing.
func newStage(base *policy.Cut) *stage {
	if base == nil {
		base = policy.NewCut(&policyv1.Set{})
	}
	return &stage{base: base, checks: &errgroup.Group{}}
}

// add takes a response with resources. What is wrong with a long one shows at the end. One of another revision than before begins anew: the one before was given up.
func (s *stage) add(r *incoming) error {
	kind := delta.Kind(r.typeURL)
	if kind == "" {
		return fmt.Errorf("resources of a type that was not asked for: %.100q", r.typeURL)
	}
	s.of(r.revision)
	for _, name := range r.removed {
		s.removed = append(s.removed, policy.Ref{Kind: kind, Name: name})
	}
	made, bytes := make([]policy.Resource, len(r.resources)), 0
	s.changed = append(s.changed, made)
	for i := range r.resources {
		bytes += len(r.resources[i].body)
	}
	if bytes < longResponse {
		return check(kind, r, made)
	}
	s.checks.Go(func() error { return check(kind, r, made) })
	return nil
}

// longResponse is from how many bytes on it is worth a goroutine to check them.
const longResponse = 256 << 10

// check makes resources of what has come, if it is what it goes by.
func check(kind string, r *incoming, made []policy.Resource) error {
	for i := range r.resources {
		in := &r.resources[i]
		if in.typeURL != r.typeURL {
			return fmt.Errorf("%s %.100q is of another type: %.100q", kind, in.name, in.typeURL)
		}
		made[i] = policy.NewResource(kind, in.name, in.body)
		if made[i].Version != in.version {
			return fmt.Errorf("%s %.100q was changed on the way: its content has the version %s, and goes by %.100s", kind, in.name, made[i].Version, in.version)
		}
	}
	return nil
}

func (s *stage) of(revision string) {
	if s.revision != revision {
		s.revision, s.changed, s.removed, s.checks = revision, nil, nil, &errgroup.Group{}
	}
}

// close is the cut that a Revision closes, and the digest that it must have.
func (s *stage) close(r *incoming) (*policy.Cut, []byte, error) {
	if len(r.resources) != 1 {
		return nil, nil, fmt.Errorf("%d revisions came at once: want one", len(r.resources))
	}
	revision, err := delta.ReadRevision(r.resources[0].body)
	if err != nil {
		return nil, nil, err
	}
	s.of(r.revision)
	if err := s.checks.Wait(); err != nil {
		return nil, nil, err
	}
	return s.base.Next(revision, slices.Concat(s.changed...), s.removed), revision.GetDigest(), nil
}
