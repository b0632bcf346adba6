package router

import (
	"slices"
	"time"
)

// path returns the node that ends where the prompt ends, made if need be.
func (x *predictive) path(p *Prompt) *node {
	if p.at == nil || p.at.gone {
		x.enter(p)
	}
	for p.depth < len(p.Hashes) {
		rest := p.Hashes[p.depth:]
		next := x.edges[edge{p.at, rest[0]}]
		if next == nil {
			next = x.grow(p.at, rest)
		}
		if same := common(next.hashes, rest); same < len(next.hashes) {
			next = x.split(next, same)
		}
		p.at, p.depth = next, p.depth+len(next.hashes)
	}
	return p.at
}

// grow adds a leaf.
func (x *predictive) grow(parent *node, hashes []uint64) *node {
	n := &node{parent: parent, hashes: slices.Clone(hashes)}
	x.edges[edge{parent, hashes[0]}] = n
	parent.kids++
	x.size += n.size()
	x.link(n, nil)
	return n
}

// split cuts a node in two and returns the upper one. Both get memory of their own, so that none keeps the other's.
func (x *predictive) split(n *node, at int) *node {
	upper := &node{parent: n.parent, hashes: slices.Clone(n.hashes[:at]), holders: slices.Clone(n.holders), used: n.used, kids: 1}
	x.edges[edge{n.parent, n.hashes[0]}] = upper
	x.size -= n.size()
	n.hashes, n.parent = slices.Clone(n.hashes[at:]), upper
	x.size += n.size() + upper.size()
	x.edges[edge{upper, n.hashes[0]}] = n
	x.link(upper, n)
	return upper
}

// joins says whether a leaf and its parent could be one, for nobody holds the one without the other.
func (x *predictive) joins(n *node, at time.Duration) bool {
	up := n.parent
	if n == &x.root || n.kids > 0 || up == &x.root || up.kids > 1 || len(n.holders) > joinMost || len(up.holders) > joinMost {
		return false
	}
	x.clean(n, at)
	x.clean(up, at)
	return len(up.holders) == len(n.holders) && !slices.ContainsFunc(up.holders, func(h holder) bool { return !slices.Contains(n.holders, h) })
}

// joinMost holders are compared.
const joinMost = 4

// join makes a leaf a part of its parent, which it returns.
func (x *predictive) join(n *node) *node {
	up := n.parent
	x.size -= up.size() + n.size()
	delete(x.edges, edge{up, n.hashes[0]})
	up.hashes, up.kids = append(up.hashes, n.hashes...), 0
	x.size += up.size()
	x.unlink(n)
	n.hashes, n.holders, n.gone = nil, nil, true
	return up
}

// forget removes the oldest node, which is a leaf.
func (x *predictive) forget(n *node) {
	x.unlink(n)
	delete(x.edges, edge{n.parent, n.hashes[0]})
	n.parent.kids--
	x.size -= n.size()
	n.hashes, n.holders, n.gone = nil, nil, true
}

// link puts a node into the list by use: as the newest, or just newer than below.
func (x *predictive) link(n, below *node) {
	if below == nil {
		below = x.newest
	}
	n.older = below
	if below == nil {
		x.oldest = n
	} else {
		n.newer = below.newer
		below.newer = n
	}
	if n.newer == nil {
		x.newest = n
	} else {
		n.newer.older = n
	}
}

func (x *predictive) unlink(n *node) {
	if n.newer == nil {
		x.newest = n.older
	} else {
		n.newer.older = n.older
	}
	if n.older == nil {
		x.oldest = n.newer
	} else {
		n.older.newer = n.newer
	}
	n.newer, n.older = nil, nil
}

func (x *predictive) know(worker int) {
	for len(x.lives) <= worker {
		x.lives = append(x.lives, 0)
	}
}

// Cleared notes that the worker holds nothing any more: it is gone, or its engine began anew. Places of the life that ends are
// dropped as they are met.
func (x *predictive) Cleared(worker int) {
	x.know(worker)
	x.lives[worker]++
}
