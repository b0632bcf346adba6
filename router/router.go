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
	// MaxBlocks remembered of what was sent, all workers together, 8 bytes each; a place where prompts part counts as 24, and each
	// worker there as 3. Of one prompt, half as many are looked at. Default 8,388,608.
	MaxBlocks int
	// MaxHeld blocks are taken of what workers announce, all together, about 10 bytes each and 18 at most; what two hold counts
	// twice. Beyond it a Feed is told what is lost. Default 67,108,864.
	MaxHeld int
	// Candidates is how many addresses a choice names at most, for retries. Default 4.
	Candidates int
	// Sessions remembered, the oldest go first, and for how long after their last request. Default 65,536, and an hour.
	Sessions   int
	SessionTTL time.Duration
	// Seed of the block hash. 0: a random one. Prompts made to collide under a known seed would be routed badly.
	Seed uint64
	// Rand gives numbers in [0, 1) for temperature. Default: math/rand/v2.
	Rand func() float64
}

func (c Config) withDefaults() Config {
	c.BlockBytes = defaulted(c.BlockBytes, defaultBlockBytes)
	c.TTL = defaulted(c.TTL, 120*time.Second)
	c.MaxBlocks = defaulted(c.MaxBlocks, 1<<23)
	c.MaxHeld = defaulted(c.MaxHeld, 1<<26)
	c.Candidates = defaulted(c.Candidates, 4)
	c.Sessions = defaulted(c.Sessions, 1<<16)
	c.SessionTTL = defaulted(c.SessionTTL, time.Hour)
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
	workers   []*worker // by name; those that answer
	prefills  []*worker // by name; those that compute prompts for others
	byName    map[name]*worker
	freeSlots []int
	slots     int
	picks     uint64
	index     *predictive
	feeds     map[name]*Feed
	life      int // of the latest of them
	sessions  sessions
	pace      pace
	missing   float64 // blocks of a prompt that are not held where it goes, on average
}

// name of a worker: one rank behind an address.
type name struct {
	addr string
	rank int
}

func (n name) compare(o name) int {
	return cmp.Or(cmp.Compare(n.addr, o.addr), cmp.Compare(n.rank, o.rank))
}

// New returns a router without workers.
func New(cfg Config) *Router {
	cfg = cfg.withDefaults()
	r := &Router{
		cfg: cfg, byName: map[name]*worker{}, feeds: map[name]*Feed{}, index: newPredictive(cfg.TTL, cfg.MaxBlocks),
		sessions: sessions{most: cfg.Sessions, ttl: cfg.SessionTTL},
	}
	r.pool.New = func() any { return new(scratch) }
	r.SetRouting(policy.Routing{
		OverlapWeight: cfg.OverlapWeight, MissWeight: cfg.MissWeight, Temperature: cfg.Temperature, BlockBytes: cfg.BlockBytes,
		Tiers: policy.DefaultTiers, Split: policy.DefaultSplit,
	})
	return r
}

// SetRouting changes the settings from the next pick on; the same again costs nothing, so it may be called before each.
// A number that is negative or none counts as 0, a share above 1 as 1, a block size below 1 as the default. With
// another block size nothing that is remembered can be compared any more, so it is dropped; bookings keep the blocks
// that they were counted in.
func (r *Router) SetRouting(p policy.Routing) {
	for _, f := range []*float64{&p.OverlapWeight, &p.MissWeight, &p.Temperature, &p.ActiveWeight, &p.CreditDecay, &p.AffinityWeight} {
		*f = sane(*f)
	}
	for _, f := range []*float64{&p.Tiers.Host, &p.Tiers.Disk, &p.Tiers.Shared, &p.Busy.DecodeShare, &p.Split.CachedShare} {
		*f = min(sane(*f), 1)
	}
	p.BlockBytes = defaulted(p.BlockBytes, defaultBlockBytes)
	if old := r.routing.Load(); old != nil && *old == p {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.routing.Swap(&p); old == nil || old.BlockBytes == p.BlockBytes {
		return
	}
	for _, w := range r.byName {
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

// worker is one rank that is, or was, in the set. A booking may outlive its worker's place in the set; then it counts on an
// object that nobody looks at any more.
type worker struct {
	// What each pick looks at of all workers, side by side.
	load  load
	last  uint64 // the latest pick that chose it
	feed  *Feed  // nil: what it holds is guessed
	slot  int    // its number in the index
	heard heard

	name        // never written again: choices read it without the lock
	only   bool // its address has no other rank
	tokens int  // that its device's KV blocks hold; 0: not known
	role   string
	place  netip.AddrPort
}

// SetWorkers makes these the workers. One that goes takes its load and what the index knows of it along; should its
// address come back, it begins with nothing. Of an address given twice the first counts.
func (r *Router) SetWorkers(ws []Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.byName
	r.byName, r.workers, r.prefills = make(map[name]*worker, len(ws)), make([]*worker, 0, len(ws)), nil
	for _, w := range ws {
		if r.byName[name{w.Addr, 0}] != nil {
			continue
		}
		for rank := range max(w.Ranks, 1) {
			r.add(old, name{w.Addr, rank}, w)
		}
	}
	for _, gone := range old {
		r.index.Cleared(gone.slot)
		r.freeSlots = append(r.freeSlots, gone.slot)
	}
	for _, of := range [][]*worker{r.workers, r.prefills} {
		slices.SortFunc(of, func(a, b *worker) int { return a.name.compare(b.name) })
	}
}

// add takes a worker in, as it was where it is among the old ones.
func (r *Router) add(old map[name]*worker, n name, w Worker) {
	k := old[n]
	if k == nil {
		k = &worker{name: n, place: placeOf(n.addr), slot: r.takeSlot(), feed: r.feeds[n]}
	}
	delete(old, n)
	k.only, k.role, k.tokens = w.Ranks <= 1, w.Role, max(w.Blocks, 0)*max(w.BlockTokens, 0)
	r.byName[n] = k
	if w.Role == RolePrefill {
		r.prefills = append(r.prefills, k)
	} else {
		r.workers = append(r.workers, k)
	}
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
	for rank := 0; ; rank++ {
		w := r.byName[name{addr, rank}]
		if w == nil {
			return
		}
		r.index.Cleared(w.slot)
	}
}
