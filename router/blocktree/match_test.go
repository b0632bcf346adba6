package blocktree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// letters of a text, a block each.
func letters(s string) []string { return strings.Split(s, "") }

// TestProvenStretchesFollowTheirPieces: what was found to fit says nothing of other pieces that come to the same place.
func TestProvenStretchesFollowTheirPieces(t *testing.T) {
	tree := New(seed, 100)
	tree.stretch = 2
	is := func(what string, worker int, prompt string, want int) {
		t.Helper()
		for range 2 { // the second time by what was proven
			if h := held(tree, worker, prompt); h.Blocks != want {
				t.Errorf("%s: worker %d holds %d blocks of %q, want %d", what, worker, h.Blocks, prompt, want)
			}
		}
	}
	chain(t, tree, 0, Device, 1, letters("aaab")...)
	is("one node", 0, "aaab", 4)
	chain(t, tree, 1, Device, 1, letters("aac")...)
	is("split", 0, "aaaa", 3)
	is("split", 0, "aaab", 4)
	is("split", 1, "aac", 3)

	tree.Clear(1)
	tree.Clear(0)
	chain(t, tree, 0, Device, 1, letters("aaab")...)
	is("anew", 0, "aaab", 4)
	chain(t, tree, 1, Device, 1, letters("aaac")...) // cuts a stretch
	tree.Remove(0, 4, Device)
	tree.Remove(1, 4, Device)
	chain(t, tree, 0, Device, 1, letters("aaad")...) // and the upper part grows
	is("grown", 0, "aaab", 3)
	is("grown", 0, "aaad", 4)

	tree.Remove(0, 4, Device)
	tree.Remove(0, 3, Device)
	chain(t, tree, 0, Device, 1, letters("aaxy")...)
	is("trimmed and grown", 0, "aaad", 2)
	is("trimmed and grown", 0, "aaxy", 4)
}

// TestWalksSideBySide note what they prove in one tree.
func TestWalksSideBySide(t *testing.T) {
	tree, r := New(seed, 2000), rand.New(rand.NewPCG(1, 1))
	var blocks []string
	for i := range 1000 {
		blocks = append(blocks, fmt.Sprint(i, "-", r.IntN(1e9)))
	}
	chain(t, tree, 0, Device, 1, blocks...)
	prompt := []byte(strings.Join(blocks, ""))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			var w Walk
			for i := range 20 {
				wrong := append([]byte(nil), prompt...)
				at := (g*131 + i*977) % len(wrong)
				wrong[at] = '!'
				w.Find(tree, 0, prompt)
				if h := w.Of(0).Held(); h.Blocks != len(blocks) {
					t.Errorf("%d of %d blocks", h.Blocks, len(blocks))
				}
				w.Find(tree, 0, wrong)
				if h := w.Of(0).Held(); h.Bytes > at || at-h.Bytes > 16 {
					t.Errorf("%d bytes fit, but the one at %d does not", h.Bytes, at)
				}
			}
		})
	}
	all.Wait()
}
