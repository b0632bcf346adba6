package epp

import (
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/router"
)

// Of the last window answers of a worker, so many may be others than what it announced before it is believed no more; and at
// most so many before it is again. Meanwhile its announcements are taken and compared all the same.
const (
	window    = 50
	tolerated = 10
	healed    = 5
)

// checks hold what was believed of each worker against what its engine reports.
type checks struct {
	log *slog.Logger

	mu  sync.Mutex
	all map[string]*check // by address
}

// So many long prompts, for so long, a worker may have answered without announcing any block: then its events do not come.
// longPrompt in bytes of text is more than a block of any engine.
const (
	silentAnswers = 5
	silentFor     = 3 * time.Second
	longPrompt    = 2048
)

// check is one run of a worker's engine, with one profile.
type check struct {
	worker fleet.Worker
	epoch  string
	feed   feeds

	parted    uint64 // a bit for each answer, the last one lowest
	void      uint64 // of those parted: it had announced nothing of the prompt
	diverging bool

	heard       int // blocks that it has announced to hold
	unheard     int // answers to long prompts while there were none
	unheardFrom time.Time
	silent      bool

	last  verdict
	since time.Time // when it began to be doubted, or to be believed
}

func (c *check) doubted() bool { return c.diverging || c.silent }

// doubt takes up what was found just now. changed: the worker is believed no more, or is again.
func (c *check) doubt(now time.Time, was bool) (changed bool) {
	if c.doubted() == was {
		return false
	}
	c.since = now
	c.feed.Doubt(!was)
	return true
}

func newChecks(log *slog.Logger) *checks { return &checks{log: log, all: map[string]*check{}} }

// open notes where a worker announces from now on.
func (cs *checks) open(w fleet.Worker, epoch string, feed feeds) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[w.Addr]
	if c == nil || c.epoch != epoch || !same(c.worker, w) {
		c = &check{worker: w, epoch: epoch}
		cs.all[w.Addr] = c
	}
	c.feed, c.heard = feed, 0
	feed.Doubt(c.doubted())
}

// anew forgets what was found of a worker: it says something else of its model.
func (cs *checks) anew(addr string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[addr]; c != nil {
		was := c.doubted()
		c.parted, c.void, c.diverging, c.unheard, c.silent = 0, 0, false, 0, false
		c.doubt(time.Now(), was)
	}
}

func (cs *checks) leave(w fleet.Worker) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[w.Addr]; c != nil && same(c.worker, w) {
		delete(cs.all, w.Addr)
	}
}

// doubts says how a worker stands whose announcements are not believed; false: they are.
func (cs *checks) doubts(addr string) (at standing, since time.Time, is bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[addr]
	switch {
	case c == nil || !c.doubted():
		return standing{}, time.Time{}, false
	case c.silent:
		return degraded(causeSilent, "no events: it has announced no block at all, and answers long prompts"), c.since, true
	}
	return degraded(causeDiverging, c.why()), c.since, true
}

func (c *check) why() string {
	if c.parted != 0 && c.void == c.parted {
		return "diverging: nothing that it announces is of the prompts that its engine has in its cache"
	}
	return "diverging: its engine reports other cached tokens than it announces"
}

// heard takes note that a worker has announced something, and how many blocks it holds now.
func (cs *checks) heard(addr string, held int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[addr]
	if c == nil {
		return
	}
	was := c.doubted()
	c.heard, c.unheard, c.silent = held, 0, false
	if c.doubt(time.Now(), was) {
		cs.believed(c)
	}
}

// answered takes note of a long prompt's answer: its blocks should have been announced by and by.
func (cs *checks) answered(addr string, now time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[addr]
	if c == nil || c.heard > 0 {
		return
	}
	if c.unheard++; c.unheard == 1 {
		c.unheardFrom = now
	}
	was := c.doubted()
	c.silent = c.unheard >= silentAnswers && now.Sub(c.unheardFrom) >= silentFor
	if c.doubt(now, was) {
		cs.log.Warn("the worker announces nothing: what it holds is guessed", "worker", c.worker.Name, "endpoint", c.worker.Endpoint, "answers", c.unheard)
	}
}

// found is an answer whose cached tokens are held against what was believed.
func (cs *checks) found(addr string, parted, void bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[addr]
	if c == nil {
		return
	}
	c.parted, c.void = shift(c.parted, parted), shift(c.void, parted && void)
	was, n := c.doubted(), bits.OnesCount64(c.parted)
	c.diverging = n > tolerated || c.diverging && n > healed
	if !c.doubt(time.Now(), was) {
		return
	}
	if was {
		cs.believed(c)
		return
	}
	cs.log.Warn("what the worker announces is not believed any more: what it holds is guessed", "worker", c.worker.Name,
		"endpoint", c.worker.Endpoint, "reason", c.why(), "of_the_last", window, "parted", n)
}

func (cs *checks) believed(c *check) {
	cs.log.Info("what the worker announces is believed again", "worker", c.worker.Name, "endpoint", c.worker.Endpoint)
}

func shift(bits uint64, bit bool) uint64 {
	bits = bits << 1 & (1<<window - 1)
	if bit {
		bits |= 1
	}
	return bits
}

// finding is how many of a worker's last answers parted from what it announced, how many blocks that were, and the last one.
type finding struct {
	endpoint, worker string
	parted, heard    int
	last             verdict
}

func (cs *checks) list() (all []finding) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for addr, c := range cs.all {
		all = append(all, finding{c.worker.Endpoint, addr, bits.OnesCount64(c.parted), c.heard, c.last})
	}
	return all
}

// verdict is the last comparison of a worker: tokens of a prompt in a cache, by the most that any worker announced, by what the
// chosen one did, and by its engine's report.
type verdict struct {
	best, chosen int64
	reported     *int64 // nil: it does not say
	at           time.Time
}

// watch waits for what the engine says of a choice. Where it says nothing of its cache, what the worker was sent a moment ago
// and has computed should be announced. Where some is still being computed, nobody can say what the cache will hold by the time
// of this prompt's turn, and the answer judges nobody.
func (p *Picker) watch(endpoint string, c *router.Choice, bytes int) {
	addr, waits := c.Addrs[0], c.Waits
	size := p.texts.blockSize(addr)
	best, chosen := int64(c.Best.Blocks)*size, int64(c.Held.Blocks)*size
	unannounced := c.Guessed >= 16 && c.Held.Bytes == 0 // more than one of the engine's blocks, whatever these are
	c.Booking.Watch(func(served string, cached *int64) {
		if served != addr {
			return // a retry: what that one held is forgotten
		}
		now := time.Now()
		if bytes >= longPrompt {
			p.checks.answered(addr, now)
		}
		if size == 0 {
			return
		}
		p.checks.compared(addr, verdict{best, chosen, cached, now})
		parted, void := unannounced, chosen == 0
		if cached != nil {
			parted = max(*cached-chosen, chosen-*cached) > size
			for stage, tokens := range map[string]int64{"best": best, "chosen": chosen, "reported": *cached} {
				p.metrics.cached.WithLabelValues(endpoint, stage).Add(float64(max(tokens, 0)))
			}
		}
		if !waits {
			p.checks.found(addr, parted, void)
		}
	})
}

func (cs *checks) compared(addr string, v verdict) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[addr]; c != nil {
		c.last = v
	}
}
