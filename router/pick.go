package router

import (
	"sync"
	"time"

	"github.com/spokegate/spokegate/router/blocktree"
)

// Ask is one request's question.
type Ask struct {
	// Prompt as package prompt renders it; may be empty. Not kept. Where not all of Text is known, what is held is guessed by it.
	Prompt []byte
	// Text is what the engine's tokenizer is given, and Root what the prompt must share beyond it with one whose blocks it is to
	// use, as workers announce it; nil: not known, and then what all hold is guessed. Not kept.
	Text []byte
	Root uint64
	// Begins says that Text is only how the prompt begins: what follows, an image say, has no text, and is guessed.
	Begins bool
	// Subset, if not nil, are the only workers eligible: ip:port, or an address alone for all its ports, IPv6 in brackets
	// or (without a port) not; an entry may be several, separated by commas. Empty: none is eligible.
	Subset []string
	// Session tells conversations apart, by SessionOf; 0: none. See policy.Routing.AffinityWeight.
	Session uint64
	// Sheddable says that the request is refused first when load is high.
	Sheddable bool
	// Split says that the caller can have the prompt computed by another worker than the one that answers: see Choice.Prefill.
	Split bool
	// OneRank says that all who are named are told one rank, whichever of them comes to serve: so others than the first, and the one
	// that computes the prompt, are named only in the rank of the first.
	OneRank bool
}

// known says that all of the prompt's text is.
func (a *Ask) known() bool { return a.Text != nil && !a.Begins }

// guessBy is what prompts are compared by where what is held is guessed: the text as the engine reads it, or if not all of that is
// known, the prompt as we write it. One is never taken for the other: the latter has bytes that no text contains.
func (a *Ask) guessBy() (prompt []byte, root uint64) {
	if a.known() {
		return a.Text, a.Root
	}
	return a.Prompt, 0
}

// size of the prompt in bytes.
func (a *Ask) size() int {
	if a.known() {
		return len(a.Text)
	}
	return max(len(a.Text), len(a.Prompt))
}

// Pick chooses a worker and books the request on it, in one step; where another computes the prompt for it, on both. The error
// is ErrNoWorker, ErrNoneEligible or a BusyError; the Choice beside the latter can explain itself, and nothing more. A now before
// the latest one seen counts as that one.
func (r *Router) Pick(now time.Time, ask Ask) (Choice, error) {
	return r.choose(now, ask, r.book)
}

// choose ranks the workers, and has book, if any, put the request on the one chosen before anybody else is chosen for.
func (r *Router) choose(now time.Time, ask Ask, book func(c *Choice, s *scratch, ask *Ask)) (Choice, error) {
	s := r.pool.Get().(*scratch)
	defer s.back(&r.pool)
	how := r.routing.Load()
	guessBy, root := ask.guessBy()
	s.prompt.read(guessBy, root, how.BlockBytes, &r.cfg)
	only := parseSubset(ask.Subset)
	if ask.Text != nil {
		r.exact.find(&s.walk, ask.Text, ask.Root)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.workers) == 0 {
		return Choice{}, ErrNoWorker
	}
	if now.After(r.clock) {
		r.clock = now
	}
	r.pace.tick(r.clock)
	r.index.Overlap(r.clock, &s.prompt, s.heldBy(r.slots))
	c := Choice{Blocks: blocksOf(ask.size(), how.BlockBytes), PrefillRank: -1, how: how}
	v := view{r: r, how: how, blocks: c.Blocks, s: s, only: only, oneRank: ask.OneRank, share: shareFor(ask.Sheddable)}
	if how.AffinityWeight > 0 {
		v.stays = r.sessions.last(r.clock, ask.Session)
	}
	err := c.rank(&v, ask.Split && len(r.prefills) > 0)
	if err == nil {
		c.tell(&v, ask.known())
	}
	if book == nil {
		c.keep(&v, true)
		return c, err
	}
	if err == nil {
		book(&c, s, &ask)
	}
	c.keep(&v, false)
	return c, err
}

// blocksOf counts a begun block as one: it has to be computed, though no engine can keep it.
func blocksOf(bytes, blockBytes int) int {
	return (bytes + blockBytes - 1) / blockBytes
}

// scratch is what a pick needs for its own time.
type scratch struct {
	prompt     Prompt
	held       []int32        // by slot, guessed
	walk       blocktree.Walk // by slot of the feed, announced
	candidates []candidate
}

func (s *scratch) back(pool *sync.Pool) {
	s.walk.Reset()
	pool.Put(s)
}

func (s *scratch) heldBy(slots int) []int32 {
	if cap(s.held) < slots {
		s.held = make([]int32, slots)
	}
	s.held = s.held[:slots]
	clear(s.held)
	return s.held
}
