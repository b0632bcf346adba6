package epp

import (
	"errors"
	"fmt"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// errAnew says that what was announced cannot be followed any further: the worker is to be asked for all of it again.
var errAnew = errors.New("the announcement has a gap")

// intake takes one worker's announcements into a feed of the router.
type intake struct {
	open    func(epoch string) *router.Feed
	profile func(*workerv1.Profile) (exact bool)
	heard   func(held int) // it has announced something, and holds so many blocks now, each in each of its tiers

	exact    bool         // what it announces can be held against prompts
	feed     *router.Feed // nil: before the first snapshot, and while it is not exact
	epoch    string
	sequence uint64
	whole    bool    // the snapshot is complete
	rank     *uint32 // of all blocks
	held     int
}

// take takes one message in. After an error the intake is of no further use.
func (in *intake) take(m *workerv1.FollowResponse) error {
	switch said := m.Message.(type) {
	case *workerv1.FollowResponse_Profile:
		if in.exact = in.profile(said.Profile); !in.exact {
			in.close()
		} else if in.epoch != "" && in.feed == nil {
			return errAnew // what it told before was passed over
		}
	case *workerv1.FollowResponse_Snapshot:
		return in.snapshot(m, said.Snapshot)
	case *workerv1.FollowResponse_Changes:
		if !in.whole || m.Epoch != in.epoch || m.Sequence != in.sequence+1 {
			return errAnew
		}
		in.sequence = m.Sequence
		if in.feed != nil {
			return in.changes(said.Changes.Changes)
		}
	}
	return nil // of a newer worker, too
}

func (in *intake) snapshot(m *workerv1.FollowResponse, s *workerv1.Snapshot) error {
	switch {
	case s.First:
		in.close()
		in.epoch, in.rank, in.held = m.Epoch, nil, 0
		if in.exact {
			in.feed = in.open(m.Epoch)
		}
	case in.whole || m.Epoch != in.epoch:
		return errAnew
	}
	in.sequence, in.whole = m.Sequence, s.Last
	if in.feed == nil {
		return nil
	}
	blocks := make([]blocktree.Block, 0, len(s.Blocks))
	for _, b := range s.Blocks {
		if err := in.add(&blocks, b); err != nil {
			return err
		}
	}
	return in.store(blocks)
}

// changes go to the router in their order, as many at a time as are of one kind.
func (in *intake) changes(all []*workerv1.Change) error {
	var stored []blocktree.Block
	for _, c := range all {
		switch c := c.Change.(type) {
		case *workerv1.Change_Stored:
			if err := in.add(&stored, c.Stored); err != nil {
				return err
			}
			continue
		case *workerv1.Change_Removed:
			if err := in.store(stored); err != nil {
				return err
			}
			stored = stored[:0]
			if tier, ok := tierOf(c.Removed.Tier); ok {
				in.feed.Removed(tier, uint32(c.Removed.Key))
				in.held--
			}
		case *workerv1.Change_Cleared:
			stored = stored[:0] // of the one rank that there is
			in.feed.Cleared()
			in.held = 0
			in.heard(0)
		}
	}
	return in.store(stored)
}

func (in *intake) store(blocks []blocktree.Block) error {
	for i := range blocks {
		if blocks[i].Tier != blocktree.Nowhere {
			in.held++
		}
	}
	if len(blocks) > 0 {
		in.heard(in.held)
	}
	if lost := in.feed.Stored(blocks); lost > 0 {
		return fmt.Errorf("%w: %d of %d blocks have no place", errAnew, lost, len(blocks))
	}
	return nil
}

func (in *intake) close() {
	if in.feed != nil {
		in.feed.Close()
	}
	in.feed = nil
}

// errRanks: what one data-parallel rank holds is of no use to another, and which of them serves is the engine's choice.
var errRanks = errors.New("its data-parallel ranks are not told apart yet")

// add appends a block.
func (in *intake) add(to *[]blocktree.Block, b *workerv1.Block) error {
	if in.rank == nil {
		in.rank = &b.Rank
	} else if *in.rank != b.Rank {
		return errRanks
	}
	tier, ok := tierOf(b.Tier)
	if !ok {
		tier = blocktree.Nowhere // it names the place of those behind it
	}
	// The low half of a key is a small number that no other block of the worker has at the same time.
	*to = append(*to, blocktree.Block{Key: uint32(b.Key), Parent: uint32(b.Parent), Root: b.Root, Length: b.Length, Hash: b.Hash, Tier: tier})
	return nil
}

func tierOf(t workerv1.Tier) (tier blocktree.Tier, ok bool) {
	switch t {
	case workerv1.Tier_TIER_DEVICE:
		return blocktree.Device, true
	case workerv1.Tier_TIER_HOST:
		return blocktree.Host, true
	case workerv1.Tier_TIER_DISK:
		return blocktree.Disk, true
	case workerv1.Tier_TIER_SHARED:
		return blocktree.Shared, true
	}
	return 0, false
}
