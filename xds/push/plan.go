package push

import (
	"crypto/sha256"
	"sync"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// plans are the pages that bring one kind from one state to another, made once for all spokes that need them.
type plans struct {
	mu   sync.Mutex
	made map[string][]*plan // by kind, the newest last
}

// plansKept is how many of a kind are remembered: spokes that come back within a few revisions share them too.
const plansKept = 16

type plan struct {
	from, to [sha256.Size]byte // of the kind's content; zero: none
	revision uint64

	once  sync.Once
	pages []*delta.Page
	err   error
}

// pages lead from what a spoke has of a kind to what it is to have.
func (p *plans) pages(kind string, from, to *policy.Cut) ([]*delta.Page, error) {
	a, b := from.KindDigest(kind), to.KindDigest(kind)
	if a == b {
		return nil, nil
	}
	one := p.find(kind, &plan{from: a, to: b, revision: to.Revision().GetNumber()})
	one.once.Do(func() {
		changed, gone := from.DiffKind(kind, to)
		one.pages, one.err = delta.Pages(kind, one.revision, changed, gone)
	})
	return one.pages, one.err
}

// find is the plan that is there already, or the new one.
func (p *plans) find(kind string, want *plan) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.made[kind]
	for _, one := range list {
		if one.from == want.from && one.to == want.to && one.revision == want.revision {
			return one
		}
	}
	if len(list) >= plansKept {
		list = append([]*plan(nil), list[1:]...)
	}
	if p.made == nil {
		p.made = map[string][]*plan{}
	}
	p.made[kind] = append(list, want)
	return want
}

// resume are the pages for a spoke that says which versions it has of a kind.
func resume(kind string, has map[string]string, to *policy.Cut) ([]*delta.Page, error) {
	var changed []policy.Resource
	var gone []policy.Ref
	for r := range to.Of(kind) {
		if has[r.Name] != r.Version {
			changed = append(changed, r)
		}
	}
	for name := range has {
		if _, there := to.Get(policy.Ref{Kind: kind, Name: name}); !there {
			gone = append(gone, policy.Ref{Kind: kind, Name: name})
		}
	}
	return delta.Pages(kind, to.Revision().GetNumber(), changed, gone)
}

// same says whether two cuts are one revision with one content.
func same(a, b *policy.Cut) bool {
	return a == b || a.Same(b) && a.Revision().GetNumber() == b.Revision().GetNumber()
}
