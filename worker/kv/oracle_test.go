package kv

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/zeebo/xxh3"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

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
