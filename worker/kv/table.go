package kv

import workerv1 "github.com/spokegate/spokegate/api/worker/v1"

// tiers are those of worker/v1 but the unspecified one.
const tiers = 4

// node is a block that the engine holds; or one that it holds no more, or was never heard of, while others follow it.
type node struct {
	name    Hash   // the engine's
	content uint64 // hash of its bytes
	parent  uint32 // its node; 0: none
	kids    uint32 // nodes whose parent it is
	turn    uint32 // how often this place in memory was used; part of the key
	length  uint32 // bytes
	tokens  uint16
	group   uint16       // index in table.groups; 0: not in use
	copies  [tiers]uint8 // by tier, as stored and not removed
	state   nodeState
}

type nodeState uint8

const (
	// hidden: no text can match it, or one before it. It is followed, and not announced.
	hidden nodeState = 1 << iota
	// adrift: it, or one before it, has not been stored as far as we know. It is announced once that has come.
	adrift
)

func (n *node) held() bool { return n.copies != [tiers]uint8{} }

// group is one group of blocks of a data-parallel rank: within it an engine's hash names one block, in whatever medium.
type group struct {
	rank      uint32
	number    uint16
	attention string
	nodes     map[Hash]uint32
}

// block is what is announced of a node in one tier.
type block struct {
	key, parent, hash, root    uint64
	length, rank, tokens, tier uint32
}

// sink takes what changes, in order.
type sink interface {
	stored(block)
	removed(key uint64, tier uint32)
	cleared(rank uint32)
}

// table is what an engine holds, as its events tell. One goroutine at a time.
//
// Copies are counted: an engine that holds a block twice stores it twice, and says so of each that it removes. Where it told
// fewer stores than removals the rest are ignored; where it told more, the block stays until its rank is cleared.
type table struct {
	seed  uint64
	vocab vocabulary
	most  int // nodes
	out   sink
	note  func(skip skipped, blocks int) // what is not announced, and why

	nodes  []node // 0 is none
	free   []uint32
	used   int
	groups []group // 0 is none
	roots  map[uint32]uint64
	// below are the nodes that follow one adrift, so that they are found when it has come.
	below map[uint32][]ref
	held  [tiers]int // announced
	bytes []byte     // scratch
}

// ref is a node as it was; another turn means that it is gone.
type ref struct{ at, turn uint32 }

func newTable(seed uint64, v vocabulary, most int, out sink, note func(skipped, int)) *table {
	return &table{seed: seed, vocab: v, most: most, out: out, note: note, nodes: make([]node, 1), groups: make([]group, 1),
		roots: map[uint32]uint64{}, below: map[uint32][]ref{}}
}

// apply takes one event of a rank.
func (t *table) apply(rank uint32, e *Event) {
	switch e.Kind {
	case Cleared:
		t.clear(rank)
	case Stored, Removed:
		if e.Tier == workerv1.Tier_TIER_UNSPECIFIED {
			t.note(skipMedium, len(e.Hashes))
			return
		}
		g := t.group(rank, e.Group)
		if e.Attention != "" {
			t.groups[g].attention = e.Attention
		}
		switch {
		case !indexed(t.groups[g].attention):
			t.note(skipGroup, len(e.Hashes))
		case e.Kind == Stored:
			t.store(g, e)
		default:
			t.remove(g, e)
		}
	default:
		t.note(skipEvent, 1)
	}
}

// group finds a group, or makes it. There are few.
func (t *table) group(rank uint32, number uint16) uint16 {
	for i := 1; i < len(t.groups); i++ {
		if t.groups[i].rank == rank && t.groups[i].number == number {
			return uint16(i)
		}
	}
	t.groups = append(t.groups, group{rank: rank, number: number, nodes: map[Hash]uint32{}})
	return uint16(len(t.groups) - 1)
}

// add counts one more copy of a block.
func (t *table) add(at uint32, tier workerv1.Tier) {
	n, i := &t.nodes[at], int(tier)-1
	if n.copies[i] == 255 {
		return
	}
	if n.copies[i]++; n.copies[i] == 1 {
		t.announce(at, i)
	}
}

func (t *table) announce(at uint32, tier int) {
	if t.nodes[at].state == 0 {
		t.held[tier]++
		t.out.stored(t.block(at, tier))
	}
}

func (t *table) block(at uint32, tier int) block {
	n := &t.nodes[at]
	b := block{key: t.key(at), hash: n.content, root: t.roots[at], length: n.length, rank: t.groups[n.group].rank,
		tokens: uint32(n.tokens), tier: uint32(tier + 1)}
	if n.parent != 0 {
		b.parent = t.key(n.parent)
	}
	return b
}

// key names a node. No other has it, before or after, while the table lives.
func (t *table) key(at uint32) uint64 { return uint64(t.nodes[at].turn)<<32 | uint64(at) }

// remove takes one copy of each block. What is not there was removed, or never announced, before: the others count.
func (t *table) remove(g uint16, e *Event) {
	tier := int(e.Tier) - 1
	for _, name := range e.Hashes {
		at := t.groups[g].nodes[name]
		if at == 0 || t.nodes[at].copies[tier] == 0 {
			t.note(skipAbsent, 1)
			continue
		}
		n := &t.nodes[at]
		if n.copies[tier]--; n.copies[tier] > 0 {
			continue
		}
		if n.state == 0 {
			t.held[tier]--
			t.out.removed(t.key(at), uint32(tier+1))
		}
		t.release(at)
	}
}

// make takes a place for a node.
func (t *table) make(g uint16, name Hash, parent uint32) uint32 {
	var at uint32
	if n := len(t.free); n > 0 {
		at, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.nodes = append(t.nodes, node{})
		at = uint32(len(t.nodes) - 1)
	}
	t.nodes[at] = node{name: name, parent: parent, group: g, turn: t.nodes[at].turn}
	if parent != 0 {
		t.nodes[parent].kids++
	}
	t.groups[g].nodes[name] = at
	t.used++
	return at
}

// release frees a node that is of no more use, and those before it that were kept for it.
func (t *table) release(at uint32) {
	for at != 0 && t.nodes[at].kids == 0 && !t.nodes[at].held() {
		parent := t.nodes[at].parent
		delete(t.groups[t.nodes[at].group].nodes, t.nodes[at].name)
		t.drop(at)
		if at = parent; at != 0 {
			t.nodes[at].kids--
		}
	}
}

func (t *table) drop(at uint32) {
	t.nodes[at] = node{turn: t.nodes[at].turn + 1}
	t.free = append(t.free, at)
	delete(t.roots, at)
	delete(t.below, at)
	t.used--
}

// clear forgets all of a rank.
func (t *table) clear(rank uint32) {
	some := false
	for i := range t.groups {
		if i == 0 || t.groups[i].rank != rank || len(t.groups[i].nodes) == 0 {
			continue
		}
		some = true
		for _, at := range t.groups[i].nodes {
			for tier, copies := range t.nodes[at].copies {
				if copies > 0 && t.nodes[at].state == 0 {
					t.held[tier]--
				}
			}
			t.drop(at)
		}
		clear(t.groups[i].nodes)
	}
	if some {
		t.out.cleared(rank)
	}
}
