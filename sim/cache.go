package sim

import (
	"container/list"
	"sync"
)

const blockBytes = BlockTokens * TokenBytes

// cache holds blocks by the hash of all that precedes them, least recently used out first. Of one sequence the deeper
// blocks are the older ones, so that eviction shortens prefixes and leaves no holes.
type cache struct {
	capacity int
	evicted  func()
	events   *kvEvents // nil: nobody is told

	mu     sync.Mutex
	blocks map[uint64]*list.Element
	order  *list.List // of uint64, most recent in front
}

func newCache(capacity int, evicted func()) *cache {
	return &cache{capacity: capacity, evicted: evicted, blocks: map[uint64]*list.Element{}, order: list.New()}
}

// match says how many whole blocks from the start of the sequence are held, and makes those recent.
func (c *cache) match(chain []uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(chain) && c.blocks[chain[n]] != nil {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		c.order.MoveToFront(c.blocks[chain[i]])
	}
	return n
}

// sequence is a text with the hashes of its whole blocks.
type sequence struct {
	salt  string
	bytes []byte
	chain []uint64
}

// sequence hashes each whole block of a text of the job together with what precedes it.
func (j *job) sequence(bytes []byte) sequence {
	return sequence{j.salt, bytes, chainOf(j.root, bytes)}
}

// insert adds the blocks of a sequence. Of a sequence longer than the cache only the start is kept.
func (c *cache) insert(s sequence) {
	chain := s.chain
	if len(chain) > c.capacity {
		chain = chain[:c.capacity]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := make([]bool, len(chain))
	for i := len(chain) - 1; i >= 0; i-- {
		if e := c.blocks[chain[i]]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.blocks[chain[i]] = c.order.PushFront(chain[i])
		fresh[i] = true
	}
	var events []any
	if c.events != nil {
		events = storedEvents(s, fresh)
	}
	for len(c.blocks) > c.capacity {
		oldest := c.order.Back()
		hash := oldest.Value.(uint64)
		delete(c.blocks, hash)
		c.order.Remove(oldest)
		c.evicted()
		if c.events != nil {
			events = append(events, removedEvent(hash))
		}
	}
	if len(events) > 0 {
		c.events.publish(events)
	}
}

func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.blocks)
}

// chainOf hashes each whole block of the sequence together with what precedes it.
func chainOf(root uint64, sequence []byte) []uint64 {
	chain := make([]uint64, 0, len(sequence)/blockBytes)
	for ; len(sequence) >= blockBytes; sequence = sequence[blockBytes:] {
		root = fnv(root, sequence[:blockBytes])
		chain = append(chain, root)
	}
	return chain
}

// rootOf keeps apart what must not share blocks: models, and cache salts.
func rootOf(model, salt string) uint64 {
	return fnv(fnv(fnvOffset, []byte(model)), []byte("\x00"+salt))
}

const fnvOffset = 14695981039346656037

// fnv is FNV-1a, 64 bits.
func fnv(h uint64, p []byte) uint64 {
	for _, b := range p {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

func tokensOf(bytes int) int64 { return int64((bytes + TokenBytes - 1) / TokenBytes) }
