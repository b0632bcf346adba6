package replay

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbCache is a list, the one used longest ago first.
type dumbCache struct {
	most int
	held []int32
}

func (d *dumbCache) use(blocks []int32) {
	blocks = blocks[:min(len(blocks), d.most)]
	d.held = slices.DeleteFunc(d.held, func(b int32) bool { return slices.Contains(blocks, b) })
	for _, b := range slices.Backward(blocks) {
		d.held = append(d.held, b)
	}
	d.held = d.held[max(len(d.held)-d.most, 0):]
}

func (d *dumbCache) leading(blocks []int32) int {
	for i, b := range blocks {
		if !slices.Contains(d.held, b) {
			return i
		}
	}
	return len(blocks)
}

// TestCacheAgainstAList also follows what the cache announces, as a picker would.
func TestCacheAgainstAList(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		most := 1 + r.IntN(30)
		c, d := newCache(most, 60), dumbCache{most: most}
		announced := map[uint32]int32{} // by key
		for step := range 200 {
			start, n := int32(r.IntN(40)), int32(r.IntN(20))
			blocks := make([]int32, n)
			for i := range blocks {
				blocks[i] = start + int32(i)
			}
			if got, want := c.leading(blocks), d.leading(blocks); got != want {
				t.Fatalf("seed %d, step %d: %d blocks at the front, want %d", seed, step, got, want)
			}
			stored, removed := c.use(blocks)
			d.use(blocks)
			for _, s := range stored {
				if _, twice := announced[s.Key]; twice || s.Key == 0 {
					t.Fatalf("seed %d, step %d: key %d is given twice", seed, step, s.Key)
				}
				if _, known := announced[s.Parent]; s.Parent != 0 && !known {
					t.Fatalf("seed %d, step %d: parent %d is not held", seed, step, s.Parent)
				}
				at := slices.IndexFunc(blocks, func(b int32) bool { return hashOf(b) == s.Hash })
				announced[s.Key] = blocks[at]
			}
			for _, key := range removed {
				delete(announced, key)
			}
			var told []int32
			for _, b := range announced {
				told = append(told, b)
			}
			slices.Sort(told)
			if want := slices.Sorted(slices.Values(d.held)); !slices.Equal(told, want) {
				t.Fatalf("seed %d, step %d: announced %v, held %v", seed, step, told, want)
			}
		}
	}
}
