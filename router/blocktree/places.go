package blocktree

import "slices"

// place of a block: its depth, and a node that it is in, or above which it is. A split leaves a node its lower part, so what
// was in the upper part is found by going up.
type place struct {
	node  uint32 // 0: the key is free
	depth uint32 // blocks before it, and in the top bits the tiers that hold it
}

const (
	tierShift = 28
	depthMask = 1<<tierShift - 1
)

func (p place) tiers() uint32 { return p.depth >> tierShift }

// after is the place so many blocks behind another.
func (p place) after(n uint32) place { return place{p.node, p.depth + n} }

// places are a worker's, by key. Workers give consecutive keys to the blocks of a prompt, so most pages are one run of places, and
// take a twentieth of what they take one by one.
type places []page

const pageKeys = 64

type page struct {
	each  *[pageKeys]place // nil: there is a run
	first place            // of the run
	from  uint8            // of its keys
	count uint8            // of its keys, or of those in each
}

func (ps places) get(key uint32) place {
	if int(key/pageKeys) >= len(ps) {
		return place{}
	}
	p, i := &ps[key/pageKeys], key%pageKeys
	if p.each != nil {
		return p.each[i]
	}
	if n := i - uint32(p.from); n < uint32(p.count) {
		return p.first.after(n)
	}
	return place{}
}

// put gives a place to a key; the zero place frees it.
func (ps *places) put(key uint32, at place) {
	if more := int(key/pageKeys) + 1 - len(*ps); more > 0 {
		if at.node == 0 {
			return
		}
		*ps = append(*ps, make([]page, more)...)
	}
	p, i := &(*ps)[key/pageKeys], key%pageKeys
	if p.each == nil && !p.extend(i, at) {
		p.spread()
	}
	if p.each == nil {
		return
	}
	if p.each[i].node != 0 {
		p.count--
	}
	if at.node != 0 {
		p.count++
	}
	p.each[i] = at
	if i == 0 || i == pageKeys-1 || p.count == 0 {
		p.gather()
	}
}

// extend puts a key into the run, if it is one still.
func (p *page) extend(i uint32, at place) bool {
	from, end := uint32(p.from), uint32(p.from)+uint32(p.count)
	switch {
	case from <= i && i < end && p.first.after(i-from) == at:
	case at.node == 0 && (i < from || i >= end):
	case at.node == 0 && i == end-1:
		p.count--
	case at.node == 0 && i == from:
		p.from, p.first = p.from+1, p.first.after(1)
		p.count--
	case at.node == 0:
		return false
	case p.count == 0:
		p.from, p.first, p.count = uint8(i), at, 1
	case i == end && p.first.after(i-from) == at:
		p.count++
	default:
		return false
	}
	return true
}

// spread writes the places of the run one by one.
func (p *page) spread() {
	each := new([pageKeys]place)
	for n := range uint32(p.count) {
		each[uint32(p.from)+n] = p.first.after(n)
	}
	p.each = each
}

// gather makes a run of places again, if they are one.
func (p *page) gather() {
	from := slices.IndexFunc(p.each[:], func(at place) bool { return at.node != 0 })
	if from < 0 {
		*p = page{}
		return
	}
	first := p.each[from]
	for n, at := range p.each[from:] {
		if in := n < int(p.count); in && at != first.after(uint32(n)) || !in && at.node != 0 {
			return
		}
	}
	p.each, p.first, p.from = nil, first, uint8(from)
}
