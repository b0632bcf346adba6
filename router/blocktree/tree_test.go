package blocktree

import (
	"errors"
	"strings"
	"testing"
)

// chain stores texts one behind the other under keys from first on.
func chain(t *testing.T, tree *Tree, worker int, tier Tier, first uint32, texts ...string) {
	t.Helper()
	for i, text := range texts {
		key, parent := first+uint32(i), uint32(0)
		if i > 0 {
			parent = key - 1
		}
		if err := tree.Store(worker, Block{Key: key, Parent: parent, Length: uint32(len(text)), Hash: hashOf(text), Tier: tier}); err != nil {
			t.Fatal(err)
		}
	}
}

func held(tree *Tree, worker int, prompt string) Held {
	var w Walk
	w.Find(tree, 0, []byte(prompt))
	return w.Of(worker).Held()
}

// TestABlockBehindAGap counts again when the gap is filled, and keeps its place until then.
func TestABlockBehindAGap(t *testing.T) {
	tree := New(seed, 100)
	chain(t, tree, 0, Nowhere, 1, "one ", "two ")
	if err := tree.Store(0, Block{Key: 3, Parent: 2, Length: 5, Hash: hashOf("three")}); err != nil {
		t.Fatal(err)
	}
	if h := held(tree, 0, "one two three"); h.Blocks != 0 {
		t.Errorf("%+v, but the first two are not held", h)
	}
	chain(t, tree, 0, Host, 1, "one ", "two ")
	if h := held(tree, 0, "one two three"); h.Blocks != 3 || h.Bytes != 13 || h.In != [tiers]int{5, 8, 0} {
		t.Errorf("%+v, want 5 bytes on the device and 8 in host memory", h)
	}
	if blocks, held := tree.Size(); blocks != 3 || held != 3 {
		t.Errorf("%d blocks, %d held", blocks, held)
	}
}

// TestTheSameTextInOtherTokens: two siblings fit the prompt, and each worker's deepest counts.
func TestTheSameTextInOtherTokens(t *testing.T) {
	tree := New(seed, 100)
	chain(t, tree, 0, Device, 1, "system", "ab", "cd", "ef")
	chain(t, tree, 1, Device, 1, "system", "abc", "d")
	chain(t, tree, 2, Device, 1, "system", "abc", "x")
	for worker, want := range []int{12, 10, 9} {
		if h := held(tree, worker, "systemabcdefg"); h.Bytes != want {
			t.Errorf("worker %d holds %d bytes, want %d", worker, h.Bytes, want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	tree := New(seed, 100)
	for _, c := range []struct {
		b    Block
		want error
	}{
		{Block{Key: 0, Length: 1}, ErrKey},
		{Block{Key: 101, Length: 1}, ErrKey},
		{Block{Key: 1, Parent: 101, Length: 1}, ErrKey},
		{Block{Key: 1, Parent: 2, Length: 1}, ErrParent},
		{Block{Key: 1, Length: maxLength + 1}, ErrBlock},
		{Block{Key: 1, Tier: Nowhere + 1}, ErrBlock},
	} {
		if err := tree.Store(0, c.b); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.b, err, c.want)
		}
	}
	tree.Remove(7, 1, Device)
	tree.Remove(0, 99, Device)
	tree.Clear(7)
	if len(tree.nodes) != 1 {
		t.Errorf("%d nodes are left of what was refused", len(tree.nodes)-1)
	}
}

// TestLengthsAreBounded: a walk hashes the prompt once for each.
func TestLengthsAreBounded(t *testing.T) {
	tree := New(seed, maxLengths+1)
	for n := range uint32(maxLengths) {
		if err := tree.Store(0, Block{Key: n + 1, Length: n}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Store(0, Block{Key: maxLengths + 1, Length: maxLengths}); !errors.Is(err, ErrBlock) {
		t.Errorf("a length too many: %v", err)
	}
	if err := tree.Store(0, Block{Key: maxLengths + 1, Length: 1, Hash: 1}); err != nil {
		t.Errorf("another block of a length that is there: %v", err)
	}
	tree.Clear(0)
	if blocks, _ := tree.Size(); blocks != 0 || len(tree.roots) != 0 {
		t.Errorf("%d blocks, %d roots are left", blocks, len(tree.roots))
	}
}

// TestAWalkGivesUp on announcements that are made to be slow: all that it finds is so, and what others hold is found as before.
func TestAWalkGivesUp(t *testing.T) {
	tree := New(seed, 1<<20)
	chain(t, tree, 1, Device, 1, "hello ", "world")
	prompt := strings.Repeat("a", 300_000)
	const levels, decoys = 200, 250
	for level, key := uint32(0), uint32(1); level < levels; level++ {
		parent := max(key, 1) - 1
		for i := range uint32(decoys) {
			if err := tree.Store(0, Block{Key: key + 1 + i, Parent: parent, Length: 16<<10 - i, Hash: uint64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		key += decoys + 1
		if err := tree.Store(0, Block{Key: key - 1, Parent: parent, Length: 1, Hash: hashOf("a")}); err != nil {
			t.Fatal(err)
		}
	}
	if h := held(tree, 0, prompt); h.Blocks < 1 || h.Blocks == levels || h.Bytes != h.Blocks {
		t.Errorf("%+v", h)
	}
	if h := held(tree, 1, "hello world"); h.Blocks != 2 {
		t.Errorf("%+v", h)
	}
}
