package epp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// TestRanksAreFedApart: what one rank announces counts for it alone, a removal finds the rank whose block it is, and a rank that the
// worker did not say it has ends the following.
func TestRanksAreFedApart(t *testing.T) {
	const seed = 7
	w := fleet.Worker{Addr: "10.0.0.1:80", Ranks: 2, Blocks: 100, BlockSize: 16, Role: fleet.RoleDecode}
	r := router.New(router.Config{OverlapWeight: 1, BlockBytes: 8})
	r.SetWorkers(workersOf([]fleet.Worker{w}))
	var held []int
	in := &intake{exact: true, open: func(string) feeds { return announced(r, w, seed) }, heard: func(n int) { held = append(held, n) }}
	text := []byte("01234567abcdefgh")
	block := func(key, parent uint64, rank uint32, b []byte) *workerv1.Block {
		return &workerv1.Block{Key: key, Parent: parent, Rank: rank, Length: uint32(len(b)), Hash: xxh3.HashSeed(b, seed), Tier: workerv1.Tier_TIER_DEVICE}
	}
	take := func(m *workerv1.FollowResponse) error {
		m.Epoch = "e"
		return in.take(m)
	}
	stored := func(b *workerv1.Block) *workerv1.Change {
		return &workerv1.Change{Change: &workerv1.Change_Stored{Stored: b}}
	}
	changes := func(sequence uint64, all ...*workerv1.Change) error {
		return take(&workerv1.FollowResponse{Sequence: sequence, Message: &workerv1.FollowResponse_Changes{Changes: &workerv1.Changes{Changes: all}}})
	}
	chosen := func() (rank, blocks int) {
		c, err := r.Would(time.Now(), router.Ask{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return c.Ranks[0], c.Held.Blocks
	}
	if err := take(&workerv1.FollowResponse{Message: &workerv1.FollowResponse_Snapshot{Snapshot: &workerv1.Snapshot{First: true, Last: true,
		Blocks: []*workerv1.Block{block(1, 0, 0, text[:8]), block(2, 0, 1, text[:8])}}}}); err != nil {
		t.Fatal(err)
	}
	if err := changes(1, stored(block(3, 2, 1, text[8:]))); err != nil {
		t.Fatal(err)
	}
	if rank, blocks := chosen(); rank != 1 || blocks != 2 {
		t.Errorf("rank %d with %d blocks, want 1 with 2", rank, blocks)
	}
	if err := changes(2, &workerv1.Change{Change: &workerv1.Change_Removed{Removed: &workerv1.Removed{Key: 2, Tier: workerv1.Tier_TIER_DEVICE}}}); err != nil {
		t.Fatal(err)
	}
	if rank, blocks := chosen(); rank != 0 || blocks != 1 {
		t.Errorf("rank %d with %d blocks, want 0 with 1", rank, blocks)
	}
	if err := changes(3, &workerv1.Change{Change: &workerv1.Change_Cleared{Cleared: &workerv1.Cleared{Rank: 0}}}); err != nil {
		t.Fatal(err)
	}
	if _, blocks := chosen(); blocks != 0 {
		t.Errorf("%d blocks, want none", blocks)
	}
	if err := changes(4, stored(block(9, 0, 2, text[:8]))); !errors.Is(err, errRanks) {
		t.Errorf("a third rank: %v", err)
	}
	if !slices.Equal(held, []int{1, 2, 3, 2}) {
		t.Errorf("said to hold %v", held)
	}
	in.close()
	if blocks, _ := r.Size(); blocks != 0 {
		t.Errorf("%d blocks left", blocks)
	}
}

// TestLoadsOfRanksAddUp: a worker has one series of each kind, however many ranks it has.
func TestLoadsOfRanksAddUp(t *testing.T) {
	r := router.New(router.Config{BlockBytes: 8})
	r.SetWorkers([]router.Worker{{Addr: "10.0.0.1:80", Ranks: 3}, {Addr: "10.0.0.2:80"}})
	r.SetRouting(policy.Routing{BlockBytes: 8, Busy: policy.Busy{Queue: 1}})
	for range 4 {
		if _, err := r.Pick(time.Now(), router.Ask{Prompt: make([]byte, 16)}); err != nil {
			t.Fatal(err)
		}
	}
	got := together(r.Load())
	if a, b := got["10.0.0.1:80"], got["10.0.0.2:80"]; len(got) != 2 || a.Requests != 3 || a.Waiting != 3 || a.PrefillBlocks != 6 || a.busy != 3 || b.Requests != 1 || b.busy != 1 {
		t.Errorf("%+v", got)
	}
}
