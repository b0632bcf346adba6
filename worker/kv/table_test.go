package kv

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
