package router

import (
	"slices"
	"time"
)

// predictive guesses what workers hold: it remembers which prompt was sent where, for a time. The router calls it under its
// own lock. Workers are small numbers; one that was cleared may be given to another worker.
//
// It is a path-compressed tree over block hashes, as package blocktree's, but no part of that. A pick must see what the one
// before it was sent, so this index is read and written under the router's lock, for some 5 µs; a walk through announced blocks
// takes 25 µs and more, changes nothing, and goes beside others. In one tree all picks would stand in one line behind such walks.
// And there would be little to share: an engine's blocks are of many lengths, are held in tiers, and go one by one in an order
// that the engine chooses; these are of one length, and go by age.
//
// A node is a run of blocks that all its holders hold whole: where a prompt ends, or parts from another, the node is split, and
// where a prompt goes on from what only its own worker was sent, the two become one. So a conversation is a path of one or
// two nodes, however many turns it has.
//
// Nodes are in one list by last use, and a parent is always used after its children. So the oldest node is a leaf, and
// forgetting from the old end never leaves a gap in a path.
type predictive struct {
	ttl time.Duration // the longest
	max int           // size

	epoch  time.Time // times below are since then
	root   node
	edges  map[edge]*node
	size   int // of all nodes, in words of 8 bytes
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
	kids         int  // nodes whose parent it is
	gone         bool // forgotten, or part of its parent now
}

// holder is a worker that was sent all of a node.
type holder struct {
	worker  int32
	life    uint32
	until   time.Duration
	pending uint32 // requests that wait there for their first byte with all of the node: it holds until they have it
}

// What a node takes beside its hashes, and a holder, in words of 8 bytes.
const (
	nodeSize   = 24
	holderSize = 3
)

func (n *node) size() int { return nodeSize + cap(n.hashes) + holderSize*cap(n.holders) }

func newPredictive(ttl time.Duration, words int) *predictive {
	return &predictive{ttl: ttl, max: words, edges: map[edge]*node{}}
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
	at := x.since(now)
	x.expire(at)
	for x.enter(p); p.depth < len(p.Hashes); {
		next := x.edges[edge{p.at, p.Hashes[p.depth]}]
		if next == nil {
			return
		}
		same := common(next.hashes, p.Hashes[p.depth:])
		for _, h := range next.holders {
			if x.valid(h, at) { // and so of all nodes before, which were sent with this one
				held[h.worker] = int32(p.depth + same)
			}
		}
		if same < len(next.hashes) {
			return
		}
		p.at, p.depth = next, p.depth+same
	}
}

// enter stands at the root.
func (x *predictive) enter(p *Prompt) { p.at, p.depth = &x.root, 0 }

// Waits says whether any of the prompt was sent to the worker and has no first byte yet, so that more of it may be held by the
// time that this prompt's turn comes.
func (x *predictive) Waits(p *Prompt, worker int) bool {
	if p.depth < len(p.Hashes) {
		if next := x.edges[edge{p.at, p.Hashes[p.depth]}]; next != nil && x.waits(next, worker) {
			return true
		}
	}
	for n := p.at; n != &x.root; n = n.parent {
		if x.waits(n, worker) {
			return true
		}
	}
	return false
}

func (x *predictive) waits(n *node, worker int) bool {
	for _, h := range n.holders {
		if h.worker == int32(worker) {
			return h.pending > 0 && h.life == x.lives[worker]
		}
	}
	return false
}

func common(a, b []uint64) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i, v := range a {
		if v != b[i] {
			return i
		}
	}
	return n
}

func (x *predictive) valid(h holder, at time.Duration) bool {
	return (h.until > at || h.pending > 0) && h.life == x.lives[h.worker]
}

// Sent notes that the prompt, which Overlap was asked for before, goes to the worker, and for how long, at most the longest,
// that holds. pending: it holds in any case until Computed says of the node returned that it has its first byte.
func (x *predictive) Sent(now time.Time, p *Prompt, worker int, ttl time.Duration, pending bool) *node {
	at := x.since(now)
	x.know(worker)
	h := holder{worker: int32(worker), life: x.lives[worker], until: at + ttl}
	if pending {
		h.pending = 1
	}
	leaf := x.path(p)
	for n := leaf; n != &x.root; n = n.parent {
		x.hold(n, h, at)
	}
	x.touch(leaf, at)
	for range 2 {
		if x.joins(leaf, at) {
			leaf = x.join(leaf)
		}
	}
	p.at = leaf
	for x.size > x.max && x.oldest != nil {
		x.forget(x.oldest)
	}
	return leaf
}

// life of a worker, for Computed.
func (x *predictive) life(worker int) uint32 {
	x.know(worker)
	return x.lives[worker]
}

// Computed ends what a pending Sent began. computed: the prompt has its first byte, and holds for ttl from now on; otherwise
// the request has ended without.
func (x *predictive) Computed(now time.Time, leaf *node, worker int, life uint32, ttl time.Duration, computed bool) {
	at := x.since(now)
	for n := leaf; n != &x.root && x.lives[worker] == life; n = n.parent {
		i := slices.IndexFunc(n.holders, func(h holder) bool { return h.worker == int32(worker) && h.life == life })
		if i < 0 { // forgotten
			continue
		}
		h := &n.holders[i]
		h.pending -= min(h.pending, 1)
		if computed {
			h.until = max(h.until, at+ttl)
		}
	}
	if computed {
		x.touch(leaf, at)
	}
}

// expire forgets the nodes that nobody was sent for the time to live, and where nobody waits. Any other call may be the one that
// does it.
func (x *predictive) expire(at time.Duration) {
	for n := x.oldest; n != nil && n.used+x.ttl <= at; n = x.oldest {
		if slices.ContainsFunc(n.holders, func(h holder) bool { return h.pending > 0 && x.valid(h, at) }) {
			x.touch(n, at)
		} else {
			x.forget(n)
		}
	}
}

// touch makes a node and those above it the newest, from below up, so that each parent is used after its child.
func (x *predictive) touch(n *node, at time.Duration) {
	for ; n != &x.root; n = n.parent {
		if n.gone {
			continue
		}
		x.unlink(n)
		x.link(n, nil)
		n.used = at
	}
}

// hold notes a holder of the node. Those that are void go when there is no place for another.
func (x *predictive) hold(n *node, h holder, at time.Duration) {
	for i := range n.holders {
		if o := &n.holders[i]; o.worker == h.worker {
			if x.valid(*o, at) {
				h.pending += o.pending
				h.until = max(h.until, o.until)
			}
			*o = h
			return
		}
	}
	x.size -= n.size()
	if len(n.holders) == cap(n.holders) {
		x.clean(n, at)
	}
	n.holders = append(n.holders, h)
	x.size += n.size()
}

// clean drops the holders that are void.
func (x *predictive) clean(n *node, at time.Duration) {
	n.holders = slices.DeleteFunc(n.holders, func(h holder) bool { return !x.valid(h, at) })
}
