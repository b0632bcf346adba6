package epp

import (
	"log/slog"
	"math/bits"
	"sync"

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

// check is one run of a worker's engine, with one profile.
type check struct {
	worker fleet.Worker
	epoch  string
	feed   *router.Feed
	parted uint64 // a bit for each answer, the last one lowest
	void   uint64 // of those parted: it had announced nothing of the prompt
	doubt  bool
}

func newChecks(log *slog.Logger) *checks { return &checks{log: log, all: map[string]*check{}} }

// open notes where a worker announces from now on.
func (cs *checks) open(w fleet.Worker, epoch string, feed *router.Feed) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.all[w.Addr]
	if c == nil || c.epoch != epoch || !same(c.worker, w) {
		c = &check{worker: w, epoch: epoch}
		cs.all[w.Addr] = c
	}
	c.feed = feed
	feed.Doubt(c.doubt)
}

// anew forgets what was found of a worker: it says something else of its model.
func (cs *checks) anew(addr string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[addr]; c != nil {
		c.parted, c.void, c.doubt = 0, 0, false
		c.feed.Doubt(false)
	}
}

func (cs *checks) leave(w fleet.Worker) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[w.Addr]; c != nil && same(c.worker, w) {
		delete(cs.all, w.Addr)
	}
}

// doubts says why a worker's announcements are not believed; empty: they are.
func (cs *checks) doubts(addr string) string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.all[addr]; c != nil && c.doubt {
		return c.why()
	}
	return ""
}

func (c *check) why() string {
	if c.parted != 0 && c.void == c.parted {
		return "diverging: nothing that it announces is of the prompts that its engine has in its cache"
	}
	return "diverging: its engine reports other cached tokens than it announces"
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
	was, n := c.doubt, bits.OnesCount64(c.parted)
	c.doubt = n > tolerated || c.doubt && n > healed
	if c.doubt == was {
		return
	}
	c.feed.Doubt(c.doubt)
	if c.doubt {
		cs.log.Warn("what the worker announces is not believed any more: what it holds is guessed", "worker", c.worker.Name,
			"endpoint", c.worker.Endpoint, "reason", c.why(), "of_the_last", window, "parted", n)
	} else {
		cs.log.Info("what the worker announces is believed again", "worker", c.worker.Name, "endpoint", c.worker.Endpoint)
	}
}

func shift(bits uint64, bit bool) uint64 {
	bits = bits << 1 & (1<<window - 1)
	if bit {
		bits |= 1
	}
	return bits
}

// standing is how many of a worker's last answers parted from what it announced.
type standing struct {
	endpoint, worker string
	parted           int
}

func (cs *checks) list() (all []standing) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for addr, c := range cs.all {
		all = append(all, standing{c.worker.Endpoint, addr, bits.OnesCount64(c.parted)})
	}
	return all
}

// watch waits for what the engine says of a choice. Where it says nothing of its cache, what the worker was sent a moment ago
// and has computed should be announced. Where some is still being computed, nobody can say what the cache will hold by the time
// of this prompt's turn, and the answer judges nobody.
func (p *Picker) watch(endpoint string, c *router.Choice) {
	size := p.texts.blockSize(c.Addrs[0])
	if size == 0 {
		return
	}
	addr, waits := c.Addrs[0], c.Waits
	best, chosen := int64(c.Best.Blocks)*size, int64(c.Held.Blocks)*size
	unannounced := c.Guessed >= 16 && c.Held.Bytes == 0 // more than one of the engine's blocks, whatever these are
	c.Booking.Watch(func(served string, cached *int64) {
		if served != addr {
			return // a retry: what that one held is forgotten
		}
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
