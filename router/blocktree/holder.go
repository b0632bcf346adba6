package blocktree

import (
	"cmp"
	"math/bits"
	"slices"
)

// holder is a worker that holds pieces of a node in one tier: nearly always its first ones.
type holder struct {
	worker uint32
	extent uint32 // how many of the first pieces
	tier   Tier
	odd    *odd // what is not so simple; nil: nothing
}

// odd is what a holder has beyond its extent.
type odd struct {
	set   []uint64          // pieces behind a gap, a bit each
	twins map[uint32]uint32 // pieces that it holds under more than one key: how many more
}

func (n *node) find(worker uint32, tier Tier) (int, bool) {
	if len(n.holders) == 1 && n.holders[0].worker == worker && n.holders[0].tier == tier { // nearly always
		return 0, true
	}
	return slices.BinarySearchFunc(n.holders, holder{worker: worker, tier: tier}, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.tier, b.tier))
	})
}

// hold notes that the worker holds a piece under one key more.
func (n *node) hold(worker uint32, tier Tier, piece uint32) {
	i, found := n.find(worker, tier)
	if !found {
		n.holders = slices.Insert(n.holders, i, holder{worker: worker, tier: tier})
	}
	h := &n.holders[i]
	switch {
	case h.has(piece):
		o := h.more()
		if o.twins == nil {
			o.twins = map[uint32]uint32{}
		}
		o.twins[piece]++
	case piece == h.extent:
		h.extent++
		h.absorb()
	default:
		h.more().add(piece)
	}
}

// release notes that it holds the piece under one key less.
func (n *node) release(worker uint32, tier Tier, piece uint32) {
	i, found := n.find(worker, tier)
	if !found {
		return
	}
	h := &n.holders[i]
	switch {
	case h.odd != nil && h.odd.twins[piece] > 0:
		if h.odd.twins[piece]--; h.odd.twins[piece] == 0 {
			delete(h.odd.twins, piece)
		}
	case piece < h.extent:
		for p := piece + 1; p < h.extent; p++ {
			h.more().add(p)
		}
		h.extent = piece
	case h.odd != nil:
		h.odd.remove(piece)
	}
	h.simplify()
	if h.extent == 0 && h.odd == nil {
		n.holders = slices.Delete(n.holders, i, i+1)
	}
}

func (h *holder) has(piece uint32) bool {
	return piece < h.extent || h.odd != nil && h.odd.has(piece)
}

// last is one more than the last piece that it holds.
func (h *holder) last() uint32 {
	if h.odd != nil {
		for i := len(h.odd.set) - 1; i >= 0; i-- {
			if w := h.odd.set[i]; w != 0 {
				return uint32(i*64 + bits.Len64(w))
			}
		}
	}
	return h.extent
}

func (h *holder) more() *odd {
	if h.odd == nil {
		h.odd = new(odd)
	}
	return h.odd
}

// absorb makes the extent as long as it can be.
func (h *holder) absorb() {
	for h.odd != nil && h.odd.has(h.extent) {
		h.odd.remove(h.extent)
		h.extent++
	}
	h.simplify()
}

func (h *holder) simplify() {
	if h.odd == nil {
		return
	}
	for len(h.odd.set) > 0 && h.odd.set[len(h.odd.set)-1] == 0 {
		h.odd.set = h.odd.set[:len(h.odd.set)-1]
	}
	if len(h.odd.set) == 0 && len(h.odd.twins) == 0 {
		h.odd = nil
	}
}

func (o *odd) has(piece uint32) bool {
	i := int(piece / 64)
	return i < len(o.set) && o.set[i]&(1<<(piece%64)) != 0
}

func (o *odd) add(piece uint32) {
	if more := int(piece/64) + 1 - len(o.set); more > 0 {
		o.set = append(o.set, make([]uint64, more)...)
	}
	o.set[piece/64] |= 1 << (piece % 64)
}

func (o *odd) remove(piece uint32) {
	if o.has(piece) {
		o.set[piece/64] &^= 1 << (piece % 64)
	}
}

// splitHolders says who holds what of the two parts of a node that is cut before piece k.
func splitHolders(all []holder, k uint32) (upper, lower []holder) {
	for _, h := range all {
		u := holder{worker: h.worker, tier: h.tier, extent: min(h.extent, k)}
		l := holder{worker: h.worker, tier: h.tier, extent: max(h.extent, k) - k}
		if h.odd != nil {
			h.odd.split(k, &u, &l)
		}
		for _, part := range []struct {
			h  *holder
			to *[]holder
		}{{&u, &upper}, {&l, &lower}} {
			part.h.absorb()
			if part.h.extent > 0 || part.h.odd != nil {
				*part.to = append(*part.to, *part.h)
			}
		}
	}
	return upper, lower
}

func (o *odd) split(k uint32, u, l *holder) {
	for i := range uint32(len(o.set)) * 64 {
		switch {
		case !o.has(i):
		case i < k:
			u.more().add(i)
		default:
			l.more().add(i - k)
		}
	}
	for piece, n := range o.twins {
		part := u
		if piece >= k {
			part, piece = l, piece-k
		}
		if part.more().twins == nil {
			part.odd.twins = map[uint32]uint32{}
		}
		part.odd.twins[piece] = n
	}
}
