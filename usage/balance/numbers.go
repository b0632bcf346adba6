package balance

import (
	"math/bits"
	"slices"
)

// numbers is a set of sequence numbers: a bit each, in pages, so that one number far off costs one page.
type numbers map[uint64]*page

const pageBits = 4096

type page [pageBits / 64]uint64

// add returns false if n is there already.
func (s numbers) add(n uint64) bool {
	p := s[n/pageBits]
	if p == nil {
		p = new(page)
		s[n/pageBits] = p
	}
	word, bit := &p[n%pageBits/64], uint64(1)<<(n%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

// span is a run of numbers, both ends included.
type span struct{ from, to uint64 }

// missing are the runs of numbers between from and to, both included, that are not in the set.
func (s numbers) missing(from, to uint64, found func(span)) {
	pages := make([]uint64, 0, len(s))
	for p := range s {
		pages = append(pages, p)
	}
	slices.Sort(pages)
	next := from // all before it is judged
	for _, at := range pages {
		for w, word := range s[at] {
			for ; word != 0; word &= word - 1 {
				n := at*pageBits + uint64(w)*64 + uint64(bits.TrailingZeros64(word))
				if n > to {
					break
				}
				if n > next {
					found(span{next, n - 1})
				}
				next = max(next, n+1)
			}
		}
	}
	if next <= to {
		found(span{next, to})
	}
}
