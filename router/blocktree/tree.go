package blocktree

import "errors"

// Tier is where a worker keeps a block: the best first.
type Tier uint8

const (
	Device Tier = iota
	Host
	Disk
	// Shared is a pool that all workers reach: what any of them stores there, Pool holds, until all that did have removed it.
	Shared
	tiers // how many there are
)

// Pool is the worker that holds what is in the tier Shared. It should announce nothing by itself.
const Pool = 0

// holderOf says whose a block in a tier is that a worker stores.
func holderOf(worker int, tier Tier) uint32 {
	if tier == Shared {
		return Pool
	}
	return uint32(worker)
}

// Nowhere is the tier of a block that the worker does not hold, and others behind it: it only names their place.
const Nowhere = tiers

// Block is one that a worker has stored.
type Block struct {
	// Key is the worker's name for it: from 1, and small, for there is a place for each up to the largest.
	Key uint32
	// Parent is the key of the block before it; 0: it begins a prompt, under Root.
	Parent uint32
	// Root tells apart prompts that may not share blocks though their bytes are equal (LoRA, salt, images).
	Root uint64
	// Length in bytes, and Hash: xxh3-64 of them with the tree's seed.
	Length uint32
	Hash   uint64
	Tier   Tier
}

var (
	// ErrParent: the worker does not hold the block's parent, so its place is unknown.
	ErrParent = errors.New("blocktree: the parent is not held")
	// ErrKey: the key is 0, or above what a worker may use.
	ErrKey = errors.New("blocktree: key out of range")
	// ErrBlock: the length or the tier is impossible, or too many blocks of other lengths follow the same one.
	ErrBlock = errors.New("blocktree: impossible block")
)

// piece is a block's length and the low bits of its hash.
type piece uint64

const (
	hashBits = 40
	hashMask = 1<<hashBits - 1
	// maxLength of a block in bytes: 2,048 tokens of 128, which are as many blanks. maxLengths may follow one block, each to be looked
	// for among the others. Both are more than prompts can be made to have: what is refused here, a worker cannot announce again.
	maxLength  = 256 << 10
	maxLengths = 16 << 10
)

func pieceOf(length uint32, hash uint64) piece {
	return piece(uint64(length)<<hashBits | hash&hashMask)
}

func (p piece) length() int { return int(p >> hashBits) }

// Tree of one endpoint. The zero value is of no use: see New.
type Tree struct {
	hasher  hasher
	maxKeys uint32
	stretch int    // pieces that are compared at once
	upMost  int    // nodes that are gone up to a key's block each time, rather than to take its place out of a run
	nodes   []node // by number; 0 is none
	free    []uint32
	edges   map[edge]uint32
	roots   map[uint64]uint32 // empty nodes that first blocks hang on
	slots   []places          // by worker
	blocks  int               // in nodes
	held    int               // keys in use
}

// edge leads from a node's end to the child that begins with a piece.
type edge struct {
	from  uint32
	first piece
}

// New makes an empty tree. seed is that of the blocks' hashes; maxKeys bounds the keys, and so the blocks, of a worker.
func New(seed uint64, maxKeys int) *Tree {
	return &Tree{
		hasher: newHasher(seed), stretch: stretch, upMost: 8, maxKeys: uint32(min(max(maxKeys, 1), depthMask)), nodes: make([]node, 1),
		edges: map[edge]uint32{}, roots: map[uint64]uint32{},
	}
}

// Size is how many blocks are in the tree, and how many are held by all workers together: what two hold counts twice.
func (t *Tree) Size() (blocks, held int) { return t.blocks, t.held }

// Store notes a block that the worker has stored. A key that is in use names this block from now on. Storing the same again
// changes nothing, in another tier it is held in both.
func (t *Tree) Store(worker int, b Block) error {
	if b.Key == 0 || b.Key > t.maxKeys || b.Parent > t.maxKeys {
		return ErrKey
	}
	if b.Length > maxLength || b.Tier > Nowhere {
		return ErrBlock
	}
	s := t.slot(worker)
	at, depth, err := t.end(s, b)
	if err != nil {
		return err
	}
	p := pieceOf(b.Length, b.Hash)
	if old := t.place(s, b.Key); old.node != 0 && !t.is(old, at, depth, p) {
		t.drop(worker, s, b.Key, old)
		if at, depth, err = t.end(s, b); err != nil {
			return err // it was its own parent
		}
	}
	n, ok := t.step(at, depth, p)
	if !ok {
		return ErrBlock
	}
	t.keep(worker, s, b.Key, n, depth, b.Tier)
	return nil
}

// end is where a block is to follow: a node, and the depth of the block.
func (t *Tree) end(s *places, b Block) (n, depth uint32, err error) {
	if b.Parent == 0 {
		return t.root(b.Root), 0, nil
	}
	at := t.place(s, b.Parent)
	if at.node == 0 {
		return 0, 0, ErrParent
	}
	return at.node, at.depth&depthMask + 1, nil
}

// is says whether a key's place is that of the piece at a depth behind a node.
func (t *Tree) is(old place, at, depth uint32, p piece) bool {
	if old.depth&depthMask != depth {
		return false
	}
	n := &t.nodes[old.node]
	return n.pieces[depth-n.start] == p && (old.node == at || n.start == depth && n.parent == at)
}

// keep gives a block to a key.
func (t *Tree) keep(worker int, s *places, key, n, depth uint32, tier Tier) {
	at := s.get(key)
	if at.node == 0 {
		t.nodes[n].refs++
		at = place{n, depth}
	}
	if bit := uint32(1) << (tierShift + tier); tier != Nowhere && at.depth&bit == 0 {
		if at.tiers() == 0 {
			t.held++
		}
		at.depth |= bit
		node := &t.nodes[n]
		node.hold(holderOf(worker, tier), tier, depth-node.start)
	}
	s.put(key, at)
}

// Remove notes that the worker holds the block no more in a tier. An unknown key changes nothing. A key that holds nothing any
// more still names its place for as long as the worker holds a block behind it, and goes on to until it is used again.
func (t *Tree) Remove(worker int, key uint32, tier Tier) {
	if worker >= len(t.slots) || tier >= tiers {
		return
	}
	s := &t.slots[worker]
	at := t.place(s, key)
	bit := uint32(1) << (tierShift + tier)
	if at.depth&bit == 0 {
		return
	}
	named := s.get(key)
	named.depth &^= bit
	if s.put(key, named); named.tiers() == 0 {
		t.held--
	}
	n := &t.nodes[at.node]
	n.release(holderOf(worker, tier), tier, at.depth&depthMask-n.start)
	t.trim(at.node)
	t.tidy(at.node)
}

// drop frees a key, in all tiers.
func (t *Tree) drop(worker int, s *places, key uint32, at place) {
	n := &t.nodes[at.node]
	for tier := range tiers {
		if at.depth&(1<<(tierShift+tier)) != 0 {
			n.release(holderOf(worker, tier), tier, at.depth&depthMask-n.start)
		}
	}
	if at.tiers() != 0 {
		t.held--
	}
	named := s.get(key).node
	s.put(key, place{})
	t.nodes[named].refs--
	t.trim(at.node)
	t.tidy(at.node)
	if named != at.node {
		t.tidy(named)
	}
}

// Clear notes that the worker holds nothing any more.
func (t *Tree) Clear(worker int) {
	for t.ClearSome(worker, pageKeys) {
	}
}

// ClearSome is Clear for about so many keys, at least one; more says whether the worker has others. Meanwhile it holds what is left.
func (t *Tree) ClearSome(worker, keys int) (more bool) {
	if worker >= len(t.slots) {
		return false
	}
	s := &t.slots[worker]
	for ; keys > 0 && len(*s) > 0; keys -= pageKeys { // from the ends of prompts, mostly: so nodes go piece by piece
		last := len(*s) - 1
		for i := pageKeys - 1; i >= 0; i-- {
			key := uint32(last*pageKeys + i)
			if at := t.place(s, key); at.node != 0 {
				t.drop(worker, s, key, at)
			}
		}
		*s = (*s)[:last]
	}
	if len(*s) == 0 {
		*s = nil
	}
	return *s != nil
}

func (t *Tree) slot(worker int) *places {
	for len(t.slots) <= worker {
		t.slots = append(t.slots, nil)
	}
	return &t.slots[worker]
}

// place of a key, with the node that the block is really in; the zero place where the key is free, or names what is gone.
func (t *Tree) place(s *places, key uint32) place {
	at := s.get(key)
	if at.node == 0 {
		return at
	}
	was, depth, up := at.node, at.depth&depthMask, 0
	for t.nodes[at.node].start > depth {
		at.node = t.nodes[at.node].parent
		up++
	}
	n := &t.nodes[at.node]
	if gone := int(depth-n.start) >= len(n.pieces); gone {
		s.put(key, place{})
		t.nodes[was].refs--
		t.tidy(was)
		return place{}
	}
	if up > t.upMost {
		s.put(key, at)
		n.refs++
		t.nodes[was].refs--
		t.tidy(was)
	}
	return at
}

// root is the empty node that first blocks hang on.
func (t *Tree) root(name uint64) uint32 {
	n := t.roots[name]
	if n == 0 {
		n = t.newNode(0, 0)
		t.nodes[n].root = name
		t.roots[name] = n
	}
	return n
}

// hash is the piece that bytes would be.
func (t *Tree) hash(b []byte) piece { return pieceOf(uint32(len(b)), t.hasher.sum(b)) }
