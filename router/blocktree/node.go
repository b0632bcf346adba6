package blocktree

import "slices"

// node is a run of blocks, each the parent of the next.
type node struct {
	pieces  []piece
	proven  proven
	holders []holder      // by worker and tier
	lengths []lengthCount // of the first pieces of the children
	root    uint64        // of a root only, which has no pieces
	parent  uint32        // 0: a root
	start   uint32        // depth of the first piece
	refs    uint32        // places that name this node
	kids    uint32        // nodes that name this one as their parent
	live    uint32        // and of these, those that are not dead
	dead    bool          // nobody holds any of it: it only leads places in it to the nodes above
}

type lengthCount struct {
	length, count uint32
}

func (t *Tree) newNode(parent, start uint32) uint32 {
	var id uint32
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		id = uint32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
	}
	t.nodes[id] = node{parent: parent, start: start}
	return id
}

// step returns the node that has the piece at a depth, which is in or just behind node n; not ok: it has no room for it.
func (t *Tree) step(n, depth uint32, p piece) (at uint32, ok bool) {
	if at := &t.nodes[n]; int(depth-at.start) < len(at.pieces) {
		if at.pieces[depth-at.start] == p {
			return n, true
		}
		n = t.split(n, depth-at.start)
	}
	if t.nodes[n].live > 0 {
		if child := t.edges[edge{n, p}]; child != 0 {
			return child, true
		}
	}
	if !t.nodes[n].room(uint32(p.length())) {
		return 0, false
	}
	t.blocks++
	if at := &t.nodes[n]; at.parent != 0 && at.live == 0 {
		at.add(p)
		return n, true
	}
	child := t.newNode(n, depth)
	t.nodes[child].pieces = []piece{p}
	t.attach(child)
	return child, true
}

// add appends a piece. Nodes are many and grow for long: an eighth is room enough.
func (n *node) add(p piece) {
	if size := len(n.pieces); size == cap(n.pieces) && size >= stretch {
		n.pieces = append(make([]piece, 0, size+size/8), n.pieces...)
	}
	n.pieces = append(n.pieces, p)
}

// room says whether a block of a length may follow the node.
func (n *node) room(length uint32) bool {
	return len(n.lengths) < maxLengths || slices.ContainsFunc(n.lengths, func(l lengthCount) bool { return l.length == length })
}

// split cuts a node before its k-th piece and returns the new upper part, whose block before k somebody holds.
func (t *Tree) split(lower, k uint32) uint32 {
	upper := t.newNode(t.nodes[lower].parent, t.nodes[lower].start)
	u, l := &t.nodes[upper], &t.nodes[lower]
	u.pieces, l.pieces = slices.Clone(l.pieces[:k]), slices.Clone(l.pieces[k:])
	u.holders, l.holders = splitHolders(l.holders, k)
	u.proven.from(&l.proven, int(k)/t.stretch)
	l.proven.cut(0) // they begin elsewhere now
	l.parent, l.start = upper, l.start+k
	t.edges[edge{u.parent, u.pieces[0]}] = upper // in the place of lower
	t.attach(lower)
	t.tidy(lower)
	return upper
}

// attach hangs a node below its parent.
func (t *Tree) attach(child uint32) {
	c := &t.nodes[child]
	first := c.pieces[0]
	t.edges[edge{c.parent, first}] = child
	p := &t.nodes[c.parent]
	p.kids++
	p.live++
	p.count(uint32(first.length()), 1)
}

func (n *node) count(length uint32, by int) {
	i := slices.IndexFunc(n.lengths, func(l lengthCount) bool { return l.length == length })
	if i < 0 {
		n.lengths = append(n.lengths, lengthCount{length, 1})
		return
	}
	if n.lengths[i].count += uint32(by); n.lengths[i].count == 0 {
		n.lengths = slices.Delete(n.lengths, i, i+1)
	}
}

// tidy takes away a node that nobody needs any more, and those above it that were there for it alone.
func (t *Tree) tidy(id uint32) {
	for id != 0 {
		n := &t.nodes[id]
		parent, done := n.parent, true
		if !n.dead && n.live == 0 && len(n.holders) == 0 {
			t.bury(id)
			done = false
		}
		if n.dead && n.refs == 0 && n.kids == 0 {
			t.nodes[parent].kids-- // of node 0, for a root: nobody looks
			*n = node{}
			t.free = append(t.free, id)
			done = false
		}
		if done {
			return
		}
		id = parent
	}
}

// bury takes a node out of every walk.
func (t *Tree) bury(id uint32) {
	n := &t.nodes[id]
	n.dead = true
	if n.parent == 0 {
		delete(t.roots, n.root)
		return
	}
	delete(t.edges, edge{n.parent, n.pieces[0]})
	p := &t.nodes[n.parent]
	p.live--
	p.count(uint32(n.pieces[0].length()), -1)
	t.blocks -= len(n.pieces)
	n.pieces = nil
	n.proven.cut(0)
}

// trimMost is how many holders are looked through for the last block that is held. Nodes that more hold keep what nobody
// holds until fewer do.
const trimMost = 16

// trim lets go of pieces at a leaf's end that nobody holds.
func (t *Tree) trim(id uint32) {
	n := &t.nodes[id]
	if n.live > 0 || len(n.holders) == 0 || len(n.holders) > trimMost {
		return
	}
	var most uint32
	for i := range n.holders {
		most = max(most, n.holders[i].last())
	}
	t.blocks -= len(n.pieces) - int(most)
	n.pieces = n.pieces[:most]
	n.proven.cut(int(most) / t.stretch)
	if cap(n.pieces) > 2*len(n.pieces)+16 {
		n.pieces = slices.Clone(n.pieces)
	}
}
