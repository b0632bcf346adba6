package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Config configures a Router. The zero value routes by load alone.
type Config struct {
	// OverlapWeight of a block to prefill against a block in decode. 0: what workers hold does not matter.
	OverlapWeight float64
	// MissWeight is what a block that the worker lacks counts beyond its prefill. 0: nothing.
	MissWeight float64
	// Temperature 0 takes the lowest cost always. Above it the choice is random, the likelier the cheaper: softmax over the
	// negative cost, scaled so that the cheapest and the dearest are 1 apart.
	Temperature float64
	// BlockBytes of a rendered prompt stand for one KV block. Default 64: 16 tokens of 4 bytes.
	BlockBytes int
	// TTL of what is remembered of a prompt that was sent to a worker which announces nothing. Default 120 s.
	TTL time.Duration
	// MaxBlocks remembered, all workers together; also how much of one prompt is looked at. Default 1,048,576.
	MaxBlocks int
	// Candidates is how many addresses a choice names at most, for retries. Default 4.
	Candidates int
	// Seed of the block hash. 0: a random one. Prompts made to collide under a known seed would be routed badly.
	Seed uint64
	// Rand gives numbers in [0, 1) for temperature. Default: math/rand/v2.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	c.BlockBytes = defaulted(c.BlockBytes, defaultBlockBytes)
	c.TTL = defaulted(c.TTL, 120*time.Second)
	c.MaxBlocks = defaulted(c.MaxBlocks, 1<<20)
	c.Candidates = defaulted(c.Candidates, 4)
	for c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

func defaulted[T cmp.Ordered](v, otherwise T) T {
	var zero T
	if v <= zero {
		return otherwise
	}
	return v
}

// Router picks among the workers of one endpoint. Safe for concurrent use.
type Router struct {
	cfg     Config                         // but for what SetRouting sets
	routing atomic.Pointer[policy.Routing] // written under mu
	pool    sync.Pool                      // of *scratch
	exact   exact                          // has a lock of its own; never taken under mu

	mu        sync.Mutex
	clock     time.Time // the latest time seen
	workers   []*worker // by address
	byAddr    map[string]*worker
	freeSlots []int
	slots     int
	picks     uint64
	index     *predictive
	feeds     map[string]*Feed // by address
	life      int              // of the latest of them
}

// New returns a router without workers.
func New(cfg Config) *Router {
	cfg = cfg.withDefaults()
	r := &Router{cfg: cfg, byAddr: map[string]*worker{}, feeds: map[string]*Feed{}, index: newPredictive(cfg.TTL, cfg.MaxBlocks)}
	r.pool.New = func() any { return new(scratch) }
	r.SetRouting(policy.Routing{OverlapWeight: cfg.OverlapWeight, MissWeight: cfg.MissWeight, Temperature: cfg.Temperature, BlockBytes: cfg.BlockBytes})
	return r
}

// SetRouting changes the settings from the next pick on; the same again costs nothing, so it may be called before each.
// A weight or temperature that is negative or not a number counts as 0, a block size below 1 as the default. With
// another block size nothing that is remembered can be compared any more, so it is dropped; bookings keep the blocks
// that they were counted in.
func (r *Router) SetRouting(p policy.Routing) {
	p.OverlapWeight, p.MissWeight, p.Temperature = sane(p.OverlapWeight), sane(p.MissWeight), sane(p.Temperature)
	p.BlockBytes = defaulted(p.BlockBytes, defaultBlockBytes)
	if old := r.routing.Load(); old != nil && *old == p {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.routing.Swap(&p); old == nil || old.BlockBytes == p.BlockBytes {
		return
	}
	for _, w := range r.workers {
		r.index.Cleared(w.slot)
	}
}

const defaultBlockBytes = 64

// sane keeps costs finite: costs that are not numbers could not be compared.
func sane(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	return math.Min(f, 1e9)
}

// worker is one that is, or was, in the set. A booking may outlive its worker's place in the set; then it counts on an
// object that nobody looks at any more.
type worker struct {
	addr     string // never written again: choices read it without the lock
	place    netip.AddrPort
	slot     int // its number in the index
	load     load
	lastPick uint64
}

// SetWorkers makes these the workers. One that goes takes its load and what the index knows of it along; should its
// address come back, it begins with nothing. Of an address given twice the first counts.
func (r *Router) SetWorkers(ws []Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.byAddr
	r.byAddr, r.workers = make(map[string]*worker, len(ws)), make([]*worker, 0, len(ws))
	for _, w := range ws {
		if r.byAddr[w.Addr] != nil {
			continue
		}
		k := old[w.Addr]
		if k == nil {
			k = &worker{addr: w.Addr, place: placeOf(w.Addr), slot: r.takeSlot()}
		}
		delete(old, w.Addr)
		r.byAddr[w.Addr] = k
		r.workers = append(r.workers, k)
	}
	for _, gone := range old {
		r.index.Cleared(gone.slot)
		r.freeSlots = append(r.freeSlots, gone.slot)
	}
	slices.SortFunc(r.workers, func(a, b *worker) int { return cmp.Compare(a.addr, b.addr) })
}

func (r *Router) takeSlot() int {
	if n := len(r.freeSlots); n > 0 {
		s := r.freeSlots[n-1]
		r.freeSlots = r.freeSlots[:n-1]
		return s
	}
	r.slots++
	return r.slots - 1
}

// Cleared tells that the worker's engine began anew, with an empty cache: what was sent there is forgotten. Bookings stay. A
// feed is told by itself.
func (r *Router) Cleared(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byAddr[addr]; w != nil {
		r.index.Cleared(w.slot)
	}
}

// Load gives the workers by address.
func (r *Router) Load() []WorkerLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	ls := make([]WorkerLoad, len(r.workers))
	for i, w := range r.workers {
		ls[i] = WorkerLoad{
			Addr: w.addr, PrefillBlocks: w.load.prefill, DecodeBlocks: w.load.decode, Requests: w.load.requests,
		}
	}
	return ls
}
