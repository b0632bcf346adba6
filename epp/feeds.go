package epp

import (
	"errors"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// feeds are where one worker's announcements go: one for each of its data-parallel ranks.
type feeds []*router.Feed

// announced opens a feed for each rank of a worker.
func announced(r *router.Router, w fleet.Worker, seed uint64) (fs feeds) {
	for rank := range max(int(w.Ranks), 1) {
		fs = append(fs, r.Announced(w.Addr, rank, seed))
	}
	return fs
}

// Doubt says of all whether they are believed.
func (fs feeds) Doubt(is bool) {
	for _, f := range fs {
		f.Doubt(is)
	}
}

// removed is told without the rank: a key is of one rank alone, and no news to the others.
func (fs feeds) removed(tier blocktree.Tier, key uint32) {
	for _, f := range fs {
		f.Removed(tier, key)
	}
}

func (fs feeds) close() {
	for _, f := range fs {
		f.Close()
	}
}

// errRanks: what one data-parallel rank holds is of no use to another, so the door must know how many there are, to choose.
var errRanks = errors.New("it has more data-parallel ranks than it says (-ranks)")

// batch are blocks to be stored, by feed.
type batch [][]blocktree.Block

func (b batch) clear() {
	for i := range b {
		b[i] = b[i][:0]
	}
}
