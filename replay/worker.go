package replay

import "github.com/spokegate/spokegate/router/blocktree"

// Fleet is the simulated workers.
type Fleet struct {
	Workers     int     `json:"workers"`
	CacheTokens int     `json:"cache_tokens"`      // of each worker
	Prefill     float64 `json:"prefill_tokens_s"`  // of each worker
	Decode      float64 `json:"decode_tokens_s"`   // of each answer
	Delay       float64 `json:"announced_after_s"` // from the worker to the picker
	// OverlapWeight and MissWeight are the policy's, for the ways that the router chooses.
	OverlapWeight float64 `json:"overlap_weight"`
	MissWeight    float64 `json:"miss_weight"`
}

// worker is one of them.
type worker struct {
	id      int
	queue   []*job // the first one is being computed
	cache   cache
	waiting int // requests here that have not ended
}

// job is a request at a worker.
type job struct {
	*Request
	number     int // in the trace
	worker     *worker
	first, end func() // of its booking
}

// cache is a worker's: what was used longest ago goes first. All by block.
type cache struct {
	most, size int
	newer      []int32  // a ring through place 0, whose older one is the newest of all and whose newer one is the oldest;
	older      []int32  // block b is at place b+1
	keys       []uint32 // as announced; 0: not held
	free       []uint32
	next       uint32
}

func newCache(most, blocks int) cache {
	return cache{most: most, newer: make([]int32, blocks+1), older: make([]int32, blocks+1), keys: make([]uint32, blocks+1)}
}

func (c *cache) unlink(at int32) {
	n, o := c.newer[at], c.older[at]
	c.older[n], c.newer[o] = o, n
}

func (c *cache) link(at int32) {
	newest := c.older[0]
	c.older[at], c.newer[at] = newest, 0
	c.newer[newest], c.older[0] = at, at
}

// use makes the blocks the newest, the first of them before all, and drops what has no room. It says what is new,
// parents before children, and what is gone. Keys of what is gone are used again, but by a later call.
func (c *cache) use(blocks []int32) (stored []blocktree.Block, removed []uint32) {
	blocks = blocks[:min(len(blocks), c.most)]
	parent := uint32(0)
	for _, b := range blocks {
		at := b + 1
		if c.keys[at] == 0 {
			c.keys[at] = c.name()
			c.size++
			c.link(at)
			stored = append(stored, blocktree.Block{Key: c.keys[at], Parent: parent, Length: pieceBytes, Hash: hashOf(b)})
		}
		parent = c.keys[at]
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		c.unlink(blocks[i] + 1)
		c.link(blocks[i] + 1)
	}
	for c.size > c.most {
		at := c.newer[0]
		c.unlink(at)
		removed = append(removed, c.keys[at])
		c.free = append(c.free, c.keys[at])
		c.keys[at] = 0
		c.size--
	}
	return stored, removed
}

func (c *cache) name() uint32 {
	if n := len(c.free); n > 0 {
		key := c.free[n-1]
		c.free = c.free[:n-1]
		return key
	}
	c.next++
	return c.next
}

// leading is how many of the blocks at the front are held.
func (c *cache) leading(blocks []int32) int {
	for i, b := range blocks {
		if c.keys[b+1] == 0 {
			return i
		}
	}
	return len(blocks)
}
