package blocktree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"
)

const seed = 7

// dumb keeps each worker's blocks in a map and walks prompts block by block, by the bytes themselves.
type dumb struct {
	workers []map[uint32]*entry
}

type entry struct {
	path  string // root and the bytes of all blocks up to here, with a mark where each ends
	tiers map[Tier]bool
	gone  bool // once it held nothing and nothing behind it was held: a worker would not name it again
}

func (d *dumb) find(root uint64, prompt string) []Held {
	var all []Held
	for worker := range d.workers {
		best := map[string]Tier{}
		for storer, blocks := range d.workers {
			for _, e := range blocks {
				for tier := range e.tiers {
					holder := storer
					if tier == Shared {
						holder = Pool
					}
					if have, is := best[e.path]; holder == worker && (!is || tier < have) {
						best[e.path] = tier
					}
				}
			}
		}
		if h := deepest(best, fmt.Sprint(root), prompt, Held{Worker: worker}); h.Blocks > 0 {
			all = append(all, h)
		}
	}
	return all
}

func deepest(held map[string]Tier, path, prompt string, h Held) Held {
	most := h
	for n := range len(prompt) + 1 {
		next := path + "|" + prompt[:n]
		tier, is := held[next]
		if !is {
			continue
		}
		longer := h
		longer.Blocks++
		longer.Bytes += n
		longer.In[tier] += n
		if longer = deepest(held, next, prompt[n:], longer); longer.Bytes > most.Bytes || longer.Bytes == most.Bytes && longer.Blocks > most.Blocks {
			most = longer
		}
	}
	return most
}

func hashOf(text string) uint64 { return xxh3.HashStringSeed(text, seed) }

// TestAgainstTheDumbTree stores, removes and clears at random: texts of few letters, cut differently, so that nodes split,
// siblings fit the same text, and blocks come back under other keys and in other tiers.
func TestAgainstTheDumbTree(t *testing.T) {
	for run := range uint64(60) {
		r := rand.New(rand.NewPCG(run, 1))
		tree, d := New(seed, 1000), &dumb{workers: []map[uint32]*entry{{}, {}, {}}}
		tree.stretch, tree.upMost = 2+int(run/2%3), int(run/2%4) // short, as these prompts are
		letters := []string{"a", "ab"}[run%2]
		var w Walk
		for step := range 400 {
			change(t, r, tree, d, letters)
			check(tree)
			if step%8 != 0 {
				continue
			}
			root, prompt := uint64(r.IntN(2)), word(r, letters, 14)
			got := all(&w, tree, root, prompt)
			if again := all(&w, tree, root, prompt); !slices.Equal(got, again) {
				t.Fatalf("run %d, step %d, prompt %q: %v, and then %v", run, step, prompt, got, again)
			}
			sorted := cmpopts.SortSlices(func(a, b Held) bool { return a.Worker < b.Worker })
			if diff := cmp.Diff(d.find(root, prompt), got, sorted, cmpopts.EquateEmpty(), ties); diff != "" {
				t.Fatalf("run %d, step %d, prompt %q: %s", run, step, prompt, diff)
			}
		}
		for worker := range d.workers {
			tree.Clear(worker)
		}
		check(tree)
		if blocks, held := tree.Size(); blocks != 0 || held != 0 || len(tree.free) != len(tree.nodes)-1 || len(tree.edges)+len(tree.roots) != 0 {
			t.Fatalf("run %d: %d blocks, %d held, %d of %d nodes free, %d edges, %d roots are left", run, blocks, held, len(tree.free), len(tree.nodes)-1, len(tree.edges), len(tree.roots))
		}
	}
}

// all that a walk finds.
func all(w *Walk, t *Tree, root uint64, prompt string) (found []Held) {
	w.Find(t, root, []byte(prompt))
	for worker := range t.slots {
		if h := w.Of(worker).Held(); h.Blocks > 0 {
			found = append(found, h)
		}
	}
	return found
}

// ties: paths of equal length may lie in different tiers, and either may be told.
var ties = cmp.Comparer(func(a, b [tiers]int) bool { return a[0]+a[1]+a[2]+a[3] == b[0]+b[1]+b[2]+b[3] })

func word(r *rand.Rand, letters string, most int) string {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// someKey is one of a few, in two pages.
func someKey(r *rand.Rand) uint32 { return pageKeys - 15 + uint32(r.IntN(30)) }

func change(t *testing.T, r *rand.Rand, tree *Tree, d *dumb, letters string) {
	t.Helper()
	worker := r.IntN(len(d.workers))
	blocks := d.workers[worker]
	key, tier := someKey(r), Tier(r.IntN(int(tiers)))
	switch n := r.IntN(100); {
	case n == 0:
		tree.Clear(worker)
		clear(blocks)
	case n < 35:
		tree.Remove(worker, key, tier)
		if e := blocks[key]; e != nil {
			delete(e.tiers, tier)
		}
	default:
		b := Block{Key: key, Root: uint64(r.IntN(2)), Tier: tier}
		if r.IntN(31) > 0 {
			b.Parent = someKey(r)
		}
		for range 1 + r.IntN(2)*r.IntN(6) { // one, or a prompt's with keys that follow one another
			if e := blocks[b.Parent]; e != nil && e.gone {
				return
			}
			store(t, tree, d, worker, b, word(r, letters, 3))
			forget(blocks)
			b.Key, b.Parent = b.Key+1, b.Key
		}
	}
	forget(blocks)
}

// forget marks what a worker would not name again.
func forget(blocks map[uint32]*entry) {
	for _, e := range blocks {
		e.gone = e.gone || !leads(blocks, e.path)
	}
}

// leads says whether a block is held, or one behind it.
func leads(blocks map[uint32]*entry, path string) bool {
	for _, e := range blocks {
		if len(e.tiers) > 0 && (e.path == path || strings.HasPrefix(e.path, path+"|")) {
			return true
		}
	}
	return false
}

func store(t *testing.T, tree *Tree, d *dumb, worker int, b Block, text string) {
	t.Helper()
	blocks := d.workers[worker]
	b.Length, b.Hash = uint32(len(text)), hashOf(text)
	path, parent := fmt.Sprint(b.Root), blocks[b.Parent]
	if b.Parent != 0 && parent != nil {
		path = parent.path
	}
	path += "|" + text
	orphan := b.Parent != 0 && parent == nil
	if e := blocks[b.Key]; !orphan && e != nil && e.path != path { // the key is another block's from now on
		delete(blocks, b.Key)
		forget(blocks)
		if b.Parent != 0 { // was it itself, or did only the former block keep its place?
			orphan = blocks[b.Parent] == nil || blocks[b.Parent].gone
		}
	}
	err := tree.Store(worker, b)
	if orphan {
		if err != ErrParent {
			t.Fatalf("Store(%+v) = %v, want ErrParent", b, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Store(%+v) = %v", b, err)
	}
	if e := blocks[b.Key]; e == nil || e.path != path {
		blocks[b.Key] = &entry{path: path, tiers: map[Tier]bool{}}
	}
	if e := blocks[b.Key]; b.Tier != Nowhere {
		e.tiers[b.Tier], e.gone = true, false
	}
}

func (p *page) used() (n int) {
	if p.each == nil {
		return int(p.count)
	}
	for _, at := range p.each {
		if at.node != 0 {
			n++
		}
	}
	return n
}

// check holds the tree's own numbers against each other.
func check(t *Tree) {
	blocks, refs, kids, live := 0, map[uint32]uint32{}, map[uint32]uint32{}, map[uint32]uint32{}
	for i := range t.nodes {
		n := &t.nodes[i]
		blocks += len(n.pieces)
		if n.parent != 0 {
			kids[n.parent]++
			if !n.dead {
				live[n.parent]++
			}
		}
	}
	for _, s := range t.slots {
		for key := range uint32(len(s) * pageKeys) {
			if at := s.get(key); at.node != 0 {
				refs[at.node]++
			}
		}
		for i, p := range s {
			if n := p.used(); n != int(p.count) {
				panic(fmt.Sprintf("page %d: %d places, %d counted", i, n, p.count))
			}
		}
	}
	for i := range t.nodes {
		n, id := &t.nodes[i], uint32(i)
		if i > 0 && (n.refs != refs[id] || n.kids != kids[id] || n.live != live[id] || n.dead && len(n.holders) > 0) {
			panic(fmt.Sprintf("node %d: %+v, but %d places, %d kids, %d live", i, n, refs[id], kids[id], live[id]))
		}
	}
	if blocks != t.blocks {
		panic(fmt.Sprintf("%d blocks in nodes, %d counted", blocks, t.blocks))
	}
}
