package blocktree

import (
	"slices"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// match says where the leading pieces of a node that fit the prompt behind at end.
//
// Pieces are small, and hashing a prompt piece by piece takes six times as long as at a stretch. So a stretch of pieces that
// has fitted once is remembered by the one hash of its bytes, and the next prompt that goes the same way, as the turns of a
// conversation do, is compared by that.
func (w *Walk) match(n *node, at uint32, level int) []uint32 {
	for len(w.ends) <= level {
		w.ends = append(w.ends, nil)
	}
	ends := slices.Grow(w.ends[level][:0], len(n.pieces))[:len(n.pieces)]
	w.ends[level] = ends
	for from := 0; from < len(n.pieces); {
		to := min(from+w.tree.stretch, len(n.pieces))
		fit := w.fit(n, from, n.pieces[from:to], ends[from:to], at)
		if from+fit < to {
			return ends[:from+fit]
		}
		from, at = to, ends[to-1]
	}
	return ends
}

// fit fills in where pieces end, those of a node from one on, and says how many of the leading ones fit.
func (w *Walk) fit(n *node, from int, pieces []piece, ends []uint32, at uint32) int {
	end := at
	for i, p := range pieces {
		end += uint32(p.length())
		ends[i] = end
	}
	size := w.tree.stretch
	whole := len(pieces) == size && int(end) <= len(w.prompt)
	var sum uint64
	if whole {
		sum = max(xxh3.HashSeed(w.prompt[at:end], w.tree.hasher.seed), 1)
		if n.proven.at(from/size) == sum {
			return len(pieces)
		}
	}
	for i, p := range pieces {
		if int(ends[i]) > len(w.prompt) || w.tree.hash(w.prompt[at:ends[i]]) != p {
			return i
		}
		at = ends[i]
	}
	if whole {
		n.proven.note(from/size, len(n.pieces)/size, sum)
	}
	return len(pieces)
}

// stretch is how many pieces are compared at once: enough that a call for the hash costs little beside the hash.
const stretch = 128

// proven are the hashes of a node's whole stretches, each of all its bytes; 0: not known. Walks that go side by side note
// them, and change nothing else of a node.
type proven struct {
	sums atomic.Pointer[[]atomic.Uint64]
}

func (p *proven) at(i int) uint64 {
	if sums := p.sums.Load(); sums != nil && i < len(*sums) {
		return (*sums)[i].Load()
	}
	return 0
}

// note remembers the i-th of n. What another walk notes at the same time may be lost, and is found again.
func (p *proven) note(i, n int, sum uint64) {
	if sums := p.sums.Load(); sums == nil || i >= len(*sums) {
		p.from(p, n)
	}
	(*p.sums.Load())[i].Store(sum)
}

// cut forgets all but the first n.
func (p *proven) cut(n int) {
	if sums := p.sums.Load(); sums != nil && n < len(*sums) {
		p.from(p, n)
	}
}

// from takes over the first n of another.
func (p *proven) from(o *proven, n int) {
	old := o.sums.Load()
	if n == 0 || old == nil && p != o {
		p.sums.Store(nil)
		return
	}
	sums := make([]atomic.Uint64, n)
	if old != nil {
		for i := range min(n, len(*old)) {
			sums[i].Store((*old)[i].Load())
		}
	}
	p.sums.Store(&sums)
}
