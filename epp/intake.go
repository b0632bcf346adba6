package epp

import (
	"errors"
	"fmt"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/router/blocktree"
)

// errAnew says that what was announced cannot be followed any further: the worker is to be asked for all of it again.
var errAnew = errors.New("the announcement has a gap")

// intake takes one worker's announcements into feeds of the router.
type intake struct {
	open    func(epoch string) feeds
	profile func(*workerv1.Profile) (exact bool)
	heard   func(held int) // it has announced something, and holds so many blocks now, each in each of its tiers

	exact    bool  // what it announces can be held against prompts
	feeds    feeds // nil: before the first snapshot, and while it is not exact
	epoch    string
	sequence uint64
	whole    bool    // the snapshot is complete
	rank     *uint32 // of all blocks, where there is one feed
	held     []int   // by feed
}

// take takes one message in. After an error the intake is of no further use.
func (in *intake) take(m *workerv1.FollowResponse) error {
	switch said := m.Message.(type) {
	case *workerv1.FollowResponse_Profile:
		if in.exact = in.profile(said.Profile); !in.exact {
			in.close()
		} else if in.epoch != "" && in.feeds == nil {
			return errAnew // what it told before was passed over
		}
	case *workerv1.FollowResponse_Snapshot:
		return in.snapshot(m, said.Snapshot)
	case *workerv1.FollowResponse_Changes:
		if !in.whole || m.Epoch != in.epoch || m.Sequence != in.sequence+1 {
			return errAnew
		}
		in.sequence = m.Sequence
		if in.feeds != nil {
			return in.changes(said.Changes.Changes)
		}
	}
	return nil // of a newer worker, too
}

func (in *intake) snapshot(m *workerv1.FollowResponse, s *workerv1.Snapshot) error {
	switch {
	case s.First:
		in.close()
		in.epoch, in.rank = m.Epoch, nil
		if in.exact {
			in.feeds = in.open(m.Epoch)
			in.held = make([]int, len(in.feeds))
		}
	case in.whole || m.Epoch != in.epoch:
		return errAnew
	}
	in.sequence, in.whole = m.Sequence, s.Last
	if in.feeds == nil {
		return nil
	}
	blocks := make(batch, len(in.feeds))
	for _, b := range s.Blocks {
		if err := in.add(blocks, b); err != nil {
			return err
		}
	}
	return in.store(blocks)
}

// changes go to the router in their order, as many at a time as are of one kind.
func (in *intake) changes(all []*workerv1.Change) error {
	stored := make(batch, len(in.feeds))
	for _, c := range all {
		switch c := c.Change.(type) {
		case *workerv1.Change_Stored:
			if err := in.add(stored, c.Stored); err != nil {
				return err
			}
			continue
		case *workerv1.Change_Removed:
			if err := in.store(stored); err != nil {
				return err
			}
			stored.clear()
			if tier, ok := tierOf(c.Removed.Tier); ok {
				in.feeds.removed(tier, uint32(c.Removed.Key))
				in.held[0]-- // of whichever rank: the sum tells, and may be too high behind the clearing of one
			}
		case *workerv1.Change_Cleared:
			at, err := in.feedOf(&c.Cleared.Rank)
			if err != nil {
				return err
			}
			stored[at] = stored[at][:0]
			in.feeds[at].Cleared()
			in.held[at] = 0
			in.heard(in.sum())
		}
	}
	return in.store(stored)
}

func (in *intake) store(all batch) error {
	for at, blocks := range all {
		for i := range blocks {
			if blocks[i].Tier != blocktree.Nowhere {
				in.held[at]++
			}
		}
		if len(blocks) > 0 {
			in.heard(in.sum())
		}
		if lost := in.feeds[at].Stored(blocks); lost > 0 {
			return fmt.Errorf("%w: %d of %d blocks have no place", errAnew, lost, len(blocks))
		}
	}
	return nil
}

// sum is how many blocks are held, by all ranks.
func (in *intake) sum() (n int) {
	for _, held := range in.held {
		n += held
	}
	return max(n, 0)
}

func (in *intake) close() {
	in.feeds.close()
	in.feeds = nil
}

// feedOf is the feed of a rank. Where there is one, it is that of whichever rank is the first to be told of.
func (in *intake) feedOf(rank *uint32) (at int, err error) {
	switch {
	case len(in.feeds) > 1 && int(*rank) < len(in.feeds):
		return int(*rank), nil
	case len(in.feeds) > 1:
		return 0, errRanks
	case in.rank == nil:
		in.rank = rank
	case *in.rank != *rank:
		return 0, errRanks
	}
	return 0, nil
}

// add appends a block to those of its rank.
func (in *intake) add(to batch, b *workerv1.Block) error {
	at, err := in.feedOf(&b.Rank)
	if err != nil {
		return err
	}
	tier, ok := tierOf(b.Tier)
	if !ok {
		tier = blocktree.Nowhere // it names the place of those behind it
	}
	// The low half of a key is a small number that no other block of the worker has at the same time.
	to[at] = append(to[at], blocktree.Block{Key: uint32(b.Key), Parent: uint32(b.Parent), Root: b.Root, Length: b.Length, Hash: b.Hash, Tier: tier})
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
