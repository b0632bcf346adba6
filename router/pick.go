package router

import (
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Ask is one request's question.
type Ask struct {
	// Prompt as package prompt renders it; may be empty. Not kept.
	Prompt []byte
	// Subset, if not nil, are the only workers eligible: ip:port, or an address alone for all its ports, IPv6 in brackets
	// or (without a port) not; an entry may be several, separated by commas. Empty: none is eligible.
	Subset []string
}

// Pick chooses a worker and books the request on it, in one step. The error is ErrNoWorker or ErrNoneEligible.
// A now before the latest one seen counts as that one.
func (r *Router) Pick(now time.Time, ask Ask) (Choice, error) {
	s := r.pool.Get().(*scratch)
	defer s.back(&r.pool)
	how := r.routing.Load()
	s.read(ask.Prompt, how.BlockBytes, r.cfg)
	only := parseSubset(ask.Subset)

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.workers) == 0 {
		return Choice{}, ErrNoWorker
	}
	if now.After(r.clock) {
		r.clock = now
	}
	held := s.heldBy(r.slots)
	r.index.Overlap(r.clock, &s.prompt, held)
	c := Choice{Blocks: blocksOf(len(ask.Prompt), how.BlockBytes), weight: how.OverlapWeight}
	c.all = r.candidates(how.OverlapWeight, c.Blocks, held, only)
	if len(c.all) == 0 {
		return Choice{}, ErrNoneEligible
	}
	c.rank(how.Temperature, r.cfg)
	r.book(&c, &s.prompt)
	return c, nil
}

// blocksOf counts a begun block as one: it has to be computed, though no engine can keep it.
func blocksOf(bytes, blockBytes int) int {
	return (bytes + blockBytes - 1) / blockBytes
}

// candidates are the eligible workers with what each would cost.
func (r *Router) candidates(weight float64, blocks int, held []int32, only *subset) []candidate {
	cs := make([]candidate, 0, len(r.workers))
	for _, w := range r.workers {
		if !only.has(w.place) {
			continue
		}
		c := candidate{w: w, held: int(held[w.slot]), load: w.load, lastPick: w.lastPick}
		c.prefill = blocks - c.held + w.load.prefill
		c.cost = cost(weight, c.prefill, w.load.decode)
		cs = append(cs, c)
	}
	return cs
}

// book puts the request on the worker chosen, and remembers the prompt there.
func (r *Router) book(c *Choice, p *Prompt) {
	best := c.all[c.order[0]]
	b := &Booking{r: r, w: best.w, held: best.held, blocks: c.Blocks}
	b.candidates = make([]holding, len(c.order))
	for i, k := range c.order {
		b.candidates[i] = holding{addr: c.all[k].w.addr, held: c.all[k].held}
	}
	best.w.load.add(b.load())
	r.picks++
	best.w.lastPick = r.picks
	r.index.Sent(r.clock, p, best.w.slot)
	c.Overlap, c.Booking = best.held, b
}

// Prompt is a prompt as an index reads it.
type Prompt struct {
	Bytes []byte
	// Hashes of its whole blocks, in order, each of the block alone.
	Hashes []uint64
}

// scratch is what a pick needs for its own time.
type scratch struct {
	prompt Prompt
	held   []int32
}

// back returns the scratch. It does not keep the prompt.
func (s *scratch) back(pool *sync.Pool) {
	s.prompt.Bytes = nil
	pool.Put(s)
}

func (s *scratch) read(prompt []byte, size int, cfg Config) {
	s.prompt.Bytes = prompt
	s.prompt.Hashes = s.prompt.Hashes[:0]
	for len(prompt) >= size && len(s.prompt.Hashes) < cfg.MaxBlocks {
		s.prompt.Hashes = append(s.prompt.Hashes, xxh3.HashSeed(prompt[:size], cfg.Seed))
		prompt = prompt[size:]
	}
}

func (s *scratch) heldBy(slots int) []int32 {
	if cap(s.held) < slots {
		s.held = make([]int32, slots)
	}
	s.held = s.held[:slots]
	clear(s.held)
	return s.held
}
