package kv

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const testSeed = 0x5eed

// picker takes in what is announced, as a picker would.
type picker struct {
	t       testing.TB
	at      place // as the announcer sees it
	epoch   string
	last    uint64 // sequence to go on from
	blocks  map[held]*workerv1.Block
	named   map[uint64]*workerv1.Block // also those that are held no more
	profile *workerv1.Profile
	said    struct{ snapshots, changes int }
}

type held struct {
	key  uint64
	tier workerv1.Tier
}

func newPicker(t testing.TB) *picker {
	return &picker{t: t, blocks: map[held]*workerv1.Block{}, named: map[uint64]*workerv1.Block{}}
}

// pull takes all that is ready.
func (p *picker) pull(a *announcer) {
	p.t.Helper()
	for {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		some, err := a.next(done, &p.at)
		if err != nil {
			return
		}
		for _, m := range some {
			var r workerv1.FollowResponse
			if err := proto.Unmarshal(m, &r); err != nil {
				p.t.Fatal(err)
			}
			p.take(&r)
		}
	}
}

func (p *picker) take(r *workerv1.FollowResponse) {
	p.t.Helper()
	switch m := r.Message.(type) {
	case *workerv1.FollowResponse_Profile:
		p.profile = m.Profile
	case *workerv1.FollowResponse_Snapshot:
		if m.Snapshot.First {
			p.blocks, p.named, p.epoch = map[held]*workerv1.Block{}, map[uint64]*workerv1.Block{}, r.Epoch
			p.said.snapshots++
		}
		for _, b := range m.Snapshot.Blocks {
			p.put(b)
		}
	case *workerv1.FollowResponse_Changes:
		p.said.changes++
		if r.Epoch != p.epoch || r.Sequence != p.last+1 {
			p.t.Fatalf("changes %d of epoch %s behind %d of %s", r.Sequence, r.Epoch, p.last, p.epoch)
		}
		for _, c := range m.Changes.Changes {
			p.change(c)
		}
	}
	if r.Sequence > 0 {
		p.last = r.Sequence
	} else if s := r.GetSnapshot(); s != nil && s.First {
		p.last = 0
	}
}

func (p *picker) change(c *workerv1.Change) {
	p.t.Helper()
	switch c := c.Change.(type) {
	case *workerv1.Change_Stored:
		if p.blocks[held{c.Stored.Key, c.Stored.Tier}] != nil {
			p.t.Fatalf("%v is stored twice", c.Stored)
		}
		p.put(c.Stored)
	case *workerv1.Change_Removed:
		if p.blocks[held{c.Removed.Key, c.Removed.Tier}] == nil {
			p.t.Fatalf("%v is removed, and not held", c.Removed)
		}
		delete(p.blocks, held{c.Removed.Key, c.Removed.Tier})
	case *workerv1.Change_Cleared:
		maps.DeleteFunc(p.blocks, func(_ held, b *workerv1.Block) bool { return b.Rank == c.Cleared.Rank })
	}
}

// put holds a block against the one of its key, and looks for the one before it.
func (p *picker) put(b *workerv1.Block) {
	p.t.Helper()
	if o := p.named[b.Key]; o != nil && (o.Parent != b.Parent || o.Hash != b.Hash || o.Rank != b.Rank || o.Root != b.Root) {
		p.t.Fatalf("the key of %v is %v's", b, o)
	}
	if b.Key == 0 || b.Length == 0 || b.Tokens == 0 || b.Parent != 0 && p.named[b.Parent] == nil {
		p.t.Fatalf("%v", b)
	}
	p.named[b.Key] = b
	if b.Tier != workerv1.Tier_TIER_UNSPECIFIED {
		p.blocks[held{b.Key, b.Tier}] = b
	}
}

// paths are the blocks that are held, each by the hashes on its way from the root.
func (p *picker) paths() map[string]int {
	out := map[string]int{}
	for at, b := range p.blocks {
		text := ""
		for o := b; o != nil; o = p.named[o.Parent] {
			text = fmt.Sprintf("/%x:%d", o.Hash, o.Length) + text
			if o.Parent == 0 {
				text = fmt.Sprintf("rank %d root %x ", o.Rank, o.Root) + text
			}
		}
		out[fmt.Sprint(text, " ", at.tier)]++
	}
	return out
}

// oracle is what is held, told in the slowest way.
type oracle struct {
	ranks map[uint32]map[Hash]*piece
}

// piece is a block of the oracle; what it stands for is known once it was stored.
type piece struct {
	known  bool
	parent Hash
	copies [tiers]int
}

// world is what the engine's hashes mean: each a block with a fixed parent, tokens and root.
type world struct {
	parents map[Hash]Hash
	tokens  map[Hash][]uint32
	salts   map[Hash][]byte
	image   map[Hash]bool
}

func newWorld(r *rand.Rand, n int) *world {
	w := &world{map[Hash]Hash{}, map[Hash][]uint32{}, map[Hash][]byte{}, map[Hash]bool{}}
	for h := Hash(1); h <= Hash(n); h++ {
		if h > 4 && r.IntN(8) > 0 {
			w.parents[h] = 1 + Hash(r.IntN(int(h)-1))
		} else if r.IntN(2) == 0 {
			w.salts[h] = appendKey(nil, 's', []byte{'a' + byte(r.IntN(2))})
		}
		for range 2 {
			w.tokens[h] = append(w.tokens[h], r.Uint32N(5))
		}
		w.image[h] = r.IntN(20) == 0
	}
	return w
}

func (w *world) event(h Hash, tier workerv1.Tier) Event {
	e := Event{Kind: Stored, Tier: tier, Hashes: []Hash{h}, Tokens: w.tokens[h], BlockSize: 2, Extra: [][]byte{w.salts[h]}}
	e.Parent, e.HasParent = w.parents[h], w.parents[h] != 0
	if w.image[h] && e.HasParent {
		e.Extra[0] = []byte("i1234")
	}
	return e
}

func (o *oracle) store(w *world, rank uint32, h Hash, tier workerv1.Tier) {
	if o.ranks[rank] == nil {
		o.ranks[rank] = map[Hash]*piece{}
	}
	at := o.ranks[rank]
	for _, name := range []Hash{w.parents[h], h} {
		if name != 0 && at[name] == nil {
			at[name] = &piece{}
		}
	}
	at[h].known, at[h].parent = true, w.parents[h]
	at[h].copies[tier-1] = min(at[h].copies[tier-1]+1, 255)
}

func (o *oracle) remove(rank uint32, h Hash, tier workerv1.Tier) {
	at := o.ranks[rank]
	if at[h] == nil || at[h].copies[tier-1] == 0 {
		return
	}
	at[h].copies[tier-1]--
	for again := true; again; { // what nobody holds and nothing follows is forgotten
		again = false
		for name, p := range at {
			followed := false
			for _, q := range at {
				followed = followed || q.known && q.parent == name
			}
			if !followed && p.copies == [tiers]int{} {
				delete(at, name)
				again = true
			}
		}
	}
}

func (o *oracle) paths(w *world) map[string]int {
	out := map[string]int{}
	for rank, at := range o.ranks {
		for h, p := range at {
			text, ok := w.path(at, h)
			for tier, copies := range p.copies {
				if copies > 0 && ok {
					out[fmt.Sprintf("rank %d %s %s", rank, text, workerv1.Tier(tier+1))]++
				}
			}
		}
	}
	return out
}

// path tells the way to a block; false: it does not lead to a root, or through what is no text.
func (w *world) path(at map[Hash]*piece, h Hash) (string, bool) {
	var bytes []byte
	for _, token := range w.tokens[h] {
		bytes = binary.LittleEndian.AppendUint32(bytes, token)
	}
	self := fmt.Sprintf("/%x:%d", xxh3.HashSeed(bytes, testSeed), len(bytes))
	parent := w.parents[h]
	switch {
	case at[h] == nil || !at[h].known || w.image[h] && parent != 0:
		return "", false
	case parent == 0:
		root := uint64(0)
		if salt := w.salts[h]; salt != nil {
			root = xxh3.HashSeed(salt, testSeed)
		}
		return fmt.Sprintf("root %x %s", root, self), true
	}
	before, ok := w.path(at, parent)
	return before + self, ok
}

// Whatever an engine tells, in whatever order, pickers that come, lag, break off and go on hold what the oracle holds.
func TestTableAgainstOracle(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(r, 4+r.IntN(60))
		a := newAnnouncer(0, func(skipped, int) {})
		a.reset(testSeed, 1<<20)
		o := &oracle{map[uint32]map[Hash]*piece{}}
		pickers := []*picker{newPicker(t), newPicker(t), newPicker(t)}
		for range 300 {
			act(r, w, a, o)
			for i, p := range pickers {
				switch r.IntN(12) {
				case 0: // breaks off, and goes on
					p.at = place{epoch: p.epoch, sequence: p.last}
				case 1:
					if r.IntN(10) == 0 { // is another one
						pickers[i] = newPicker(t)
					}
				case 2, 3:
					p.pull(a)
				}
			}
		}
		want := o.paths(w)
		for i, p := range append(pickers, newPicker(t)) {
			p.pull(a)
			if diff := cmp.Diff(want, p.paths()); diff != "" {
				t.Fatalf("seed %d, picker %d (-oracle +picker):\n%s", seed, i, diff)
			}
		}
		counted := 0
		for _, n := range a.counts().held {
			counted += n
		}
		if total := sum(want); counted != total {
			t.Fatalf("seed %d: %d counted, %d held", seed, counted, total)
		}
		emptied(t, a, o)
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// act does one random thing to both.
func act(r *rand.Rand, w *world, a *announcer, o *oracle) {
	rank, h, tier := uint32(r.IntN(2)), 1+Hash(r.IntN(len(w.tokens))), workerv1.Tier(1+r.IntN(2))
	switch n := r.IntN(200); {
	case n == 0:
		a.apply(rank, []Event{{Kind: Cleared}})
		delete(o.ranks, rank)
	case n < 110:
		a.apply(rank, []Event{w.event(h, tier)})
		o.store(w, rank, h, tier)
	default:
		a.apply(rank, []Event{{Kind: Removed, Tier: tier, Hashes: []Hash{h, 1 << 40}}})
		o.remove(rank, h, tier)
	}
}

// emptied removes all, and looks that nothing is kept.
func emptied(t *testing.T, a *announcer, o *oracle) {
	t.Helper()
	for rank, at := range o.ranks {
		for h, p := range at {
			for tier, copies := range p.copies {
				a.apply(rank, slices.Repeat([]Event{{Kind: Removed, Tier: workerv1.Tier(tier + 1), Hashes: []Hash{h}}}, copies))
			}
		}
	}
	if a.table.used != 0 || len(a.table.roots) != 0 || len(a.table.below) != 0 || len(a.table.free) != len(a.table.nodes)-1 {
		t.Fatalf("%d nodes, %d roots, %d adrift are kept", a.table.used, len(a.table.roots), len(a.table.below))
	}
}
