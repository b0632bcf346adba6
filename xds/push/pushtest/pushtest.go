// Package pushtest has what tests and measurements of the push need: cuts in memory, in place of a hub's store.
package pushtest

import (
	"fmt"
	"sync"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// Cuts are what spokes get, held in memory. The zero value has none.
type Cuts struct {
	mu      sync.Mutex
	all     *policy.Cut
	of      map[string]*policy.Cut
	changed chan struct{}
}

// Cut implements push.Cuts.
func (c *Cuts) Cut(spoke string) *policy.Cut {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.of[spoke]; own != nil {
		return own
	}
	return c.all
}

// Changed implements push.Cuts.
func (c *Cuts) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Publish gives all spokes a cut, but for those that get one of their own.
func (c *Cuts) Publish(all *policy.Cut, of map[string]*policy.Cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.of = all, of
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Next publishes the revision after the one that all have, with these changes, and gives it.
func (c *Cuts) Next(changed []policy.Resource, removed ...policy.Ref) *policy.Cut {
	before := c.Cut("")
	if before == nil {
		before = policy.NewCut(&policyv1.Set{})
	}
	number := before.Revision().GetNumber() + 1
	next := before.Next(&policyv1.Revision{Number: number, Message: fmt.Sprint("change ", number)}, changed, removed)
	c.Publish(next, nil)
	return next
}

// Team is a team as a resource, with a limit by which one is told from another.
func Team(name string, perDay uint64) policy.Resource {
	return policy.Encode(policy.KindTeam, name, &policyv1.Team{Name: name, Models: []string{"m"}, Limits: []*policyv1.Limit{{RequestsPerDay: &perDay}}})
}

// Base is a model and its endpoint, without which a policy is none.
func Base() []policy.Resource {
	return []policy.Resource{
		policy.Encode(policy.KindEndpoint, "e", &policyv1.Endpoint{Name: "e"}),
		policy.Encode(policy.KindModel, "m", &policyv1.Model{Name: "m", Endpoint: "e"}),
	}
}
