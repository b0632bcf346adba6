package router

import (
	"slices"
	"time"
)

// predictive guesses what workers hold: it remembers which prompt was sent where, for a time. The router calls it under its
// own lock. Workers are small numbers; one that was cleared may be given to another worker.
//
// It is a path-compressed tree over block hashes. A node is a run of blocks that all its holders hold whole: where a prompt
// ends, or parts from another, the node is split. So a conversation of n turns is a path of about n nodes, however long it
// is.
//
// Nodes are in one list by last use, and a parent is always used after its children. So the oldest node is a leaf, and
// forgetting from the old end never leaves a gap in a path.
type predictive struct {
	ttl time.Duration // the longest
	max int           // blocks

	epoch  time.Time // times below are since then
	root   node
	edges  map[edge]*node
	blocks int // in all nodes
	newest *node
	oldest *node

	lives []uint32 // by worker number; places of earlier lives are void
}

type edge struct {
	from  *node
	first uint64 // hash of the first block
}

type node struct {
	hashes       []uint64 // at least one, but for the root
	parent       *node
	holders      []holder
	used         time.Duration
	newer, older *node
}

// holder is a worker that was sent all of a node.
type holder struct {
	worker  int32
	life    uint32
	until   time.Duration
	pending uint32 // requests that wait there for their first byte with all of the node: it holds until they have it
}

func newPredictive(ttl time.Duration, maxBlocks int) *predictive {
	return &predictive{ttl: ttl, max: maxBlocks, edges: map[edge]*node{}}
}

// since gives the time in the index's own terms.
func (x *predictive) since(now time.Time) time.Duration {
	if x.epoch.IsZero() {
		x.epoch = now
	}
	return now.Sub(x.epoch)
}

// Overlap sets held[w], which is 0 before, to the number of leading whole blocks of the prompt that worker w was sent.
func (x *predictive) Overlap(now time.Time, p *Prompt, held []int32) {
	at, n, depth := x.since(now), &x.root, 0
	x.expire(at)
	for depth < len(p.Hashes) {
		next := x.edges[edge{n, p.Hashes[depth]}]
		if next == nil {
			return
		}
		same := common(next.hashes, p.Hashes[depth:])
		for _, h := range next.holders {
			if x.valid(h, at) { // and so of all nodes before, which were sent with this one
				held[h.worker] = int32(depth + same)
			}
		}
		depth += same
		if same < len(next.hashes) {
			return
		}
		n = next
	}
}

// Waits says whether any of the prompt was sent to the worker and has no first byte yet, so that more of it may be held by the
// time that this prompt's turn comes.
func (x *predictive) Waits(p *Prompt, worker int) bool {
	for n, rest := &x.root, p.Hashes; len(rest) > 0; {
		next := x.edges[edge{n, rest[0]}]
		if next == nil {
			return false
		}
		for _, h := range next.holders {
			if h.worker == int32(worker) && h.pending > 0 && h.life == x.lives[worker] {
				return true
			}
		}
		same := common(next.hashes, rest)
		if same < len(next.hashes) {
			return false
		}
		n, rest = next, rest[same:]
	}
	return false
}

func common(a, b []uint64) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (x *predictive) valid(h holder, at time.Duration) bool {
	return (h.until > at || h.pending > 0) && h.life == x.lives[h.worker]
}

// Sent notes that the prompt goes to the worker, and for how long, at most the longest, that holds. pending: it holds in any
// case until Computed says that it has its first byte.
func (x *predictive) Sent(now time.Time, hashes []uint64, worker int, ttl time.Duration, pending bool) {
	at := x.since(now)
	x.know(worker)
	h := holder{worker: int32(worker), life: x.lives[worker], until: at + ttl}
	if pending {
		h.pending = 1
	}
	// From the leaf up, so that each parent is used after its child.
	for n := x.path(hashes); n != &x.root; n = n.parent {
		x.hold(n, h, at)
		x.unlink(n)
		x.link(n, nil)
		n.used = at
	}
	for x.blocks > x.max {
		x.forget(x.oldest)
	}
}

// life of a worker, for Computed.
func (x *predictive) life(worker int) uint32 {
	x.know(worker)
	return x.lives[worker]
}

// Computed ends what a pending Sent began. computed: the prompt has its first byte, and holds for ttl from now on; otherwise
// the request has ended without.
func (x *predictive) Computed(now time.Time, hashes []uint64, worker int, life uint32, ttl time.Duration, computed bool) {
	at, n := x.since(now), &x.root
	for len(hashes) > 0 && x.lives[worker] == life {
		next := x.edges[edge{n, hashes[0]}]
		if next == nil || len(next.hashes) > len(hashes) || common(next.hashes, hashes) < len(next.hashes) {
			return // forgotten
		}
		for i := range next.holders {
			h := &next.holders[i]
			if h.worker != int32(worker) || h.life != life {
				continue
			}
			h.pending -= min(h.pending, 1)
			if computed {
				h.until = max(h.until, at+ttl)
			}
		}
		n, hashes = next, hashes[len(next.hashes):]
	}
}

// path returns the node that ends where the prompt ends, made if need be.
func (x *predictive) path(hashes []uint64) *node {
	n := &x.root
	for len(hashes) > 0 {
		next := x.edges[edge{n, hashes[0]}]
		if next == nil {
			return x.grow(n, hashes)
		}
		same := common(next.hashes, hashes)
		if same < len(next.hashes) {
			next = x.split(next, same)
		}
		n, hashes = next, hashes[same:]
	}
	return n
}

// grow adds a leaf.
func (x *predictive) grow(parent *node, hashes []uint64) *node {
	n := &node{parent: parent, hashes: slices.Clone(hashes)}
	x.edges[edge{parent, hashes[0]}] = n
	x.blocks += len(hashes)
	x.link(n, nil)
	return n
}

// split cuts a node in two and returns the upper one. Both get memory of their own, so that none keeps the other's.
func (x *predictive) split(n *node, at int) *node {
	upper := &node{parent: n.parent, hashes: slices.Clone(n.hashes[:at]), holders: slices.Clone(n.holders), used: n.used}
	x.edges[edge{n.parent, n.hashes[0]}] = upper
	n.hashes, n.parent = slices.Clone(n.hashes[at:]), upper
	x.edges[edge{upper, n.hashes[0]}] = n
	x.link(upper, n)
	return upper
}

// hold notes a holder of the node, and drops those that are void.
func (x *predictive) hold(n *node, h holder, at time.Duration) {
	keep := n.holders[:0]
	for _, o := range n.holders {
		switch {
		case !x.valid(o, at):
		case o.worker == h.worker:
			h.pending += o.pending
			h.until = max(h.until, o.until)
		default:
			keep = append(keep, o)
		}
	}
	n.holders = append(keep, h)
}

// expire forgets the nodes that nobody was sent for the time to live. Any other call may be the one that does it.
func (x *predictive) expire(at time.Duration) {
	for x.oldest != nil && x.oldest.used+x.ttl <= at {
		x.forget(x.oldest)
	}
}

// forget removes the oldest node, which is a leaf.
func (x *predictive) forget(n *node) {
	x.unlink(n)
	delete(x.edges, edge{n.parent, n.hashes[0]})
	x.blocks -= len(n.hashes)
}
