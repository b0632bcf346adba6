package router

import (
	"slices"
	"sync"
	"time"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// burst is how long a prompt counts as held where it was sent, with workers that announce what they hold, once it has its
// first byte: until then it waits there, and from then on their word of it comes.
const burst = 10 * time.Second

// maxKeys bounds the blocks of one worker: 64 million tokens of the smallest usual size, and more than a shim follows.
const maxKeys = 1 << 22

// exact is what the workers with a feed hold. Walks go side by side, and beside the router's own lock.
type exact struct {
	mu    sync.RWMutex
	tree  *blocktree.Tree
	seed  uint64
	lives int // feeds of an earlier seed are void
	slots int // workers in tree, and numbers to use again
	free  []int
}

// Feed is where one worker's announcements go. Its methods do nothing once it is closed, or void because another feed
// came with another seed.
type Feed struct {
	r  *Router
	of name

	life, slot int  // set once
	gone       bool // guarded by r.exact.mu
	doubted    bool // guarded by r.mu
}

// Announced says that what a rank of a worker (0 where it has but one) holds is announced from now on, beginning with nothing, by hashes with this seed. The
// worker need not be in the set (yet). The feed takes the place of one that the address had; Close it to go back to guessing.
// One endpoint has one seed: another one voids the feeds with the former.
func (r *Router) Announced(addr string, rank int, seed uint64) *Feed {
	f := &Feed{r: r, of: name{addr, max(rank, 0)}}
	r.exact.open(f, seed)
	r.mu.Lock()
	r.life = max(r.life, f.life)
	old := r.feeds[f.of]
	r.feed(f.of, f)
	for of, o := range r.feeds { // this one too, where another was quicker
		if o.life < r.life {
			r.feed(of, nil)
		}
	}
	r.mu.Unlock()
	if old != nil {
		r.exact.close(old)
	}
	return f
}

// Close ends the feed: what the worker holds is guessed again.
func (f *Feed) Close() {
	f.r.mu.Lock()
	if f.r.feeds[f.of] == f {
		f.r.feed(f.of, nil)
	}
	f.r.mu.Unlock()
	f.r.exact.close(f)
}

// feed gives a worker its feed, now or when it comes; nil: it has none any more.
func (r *Router) feed(of name, f *Feed) {
	if f == nil {
		delete(r.feeds, of)
	} else {
		r.feeds[of] = f
	}
	if w := r.byName[of]; w != nil {
		w.feed = f
	}
}

// Doubt says whether what it announces is found not to be so: then it is noted and told of, and what the worker holds is
// guessed.
func (f *Feed) Doubt(is bool) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	f.doubted = is
}

// Stored notes blocks that the engine holds, parents before children. It says how many could not be placed, for their parent
// is unknown or they are beyond what a worker, or all together, may hold: then only a new beginning helps.
func (f *Feed) Stored(blocks []blocktree.Block) (lost int) {
	for some := range slices.Chunk(blocks, atOnce) {
		f.change(func(t *blocktree.Tree) {
			for i := range some {
				if _, held := t.Size(); held >= f.r.cfg.MaxHeld || t.Store(f.slot, some[i]) != nil {
					lost++
				}
			}
		})
	}
	return lost
}

// atOnce is how many blocks are stored or cleared at a time; picks wait no longer than for these.
const atOnce = 1024

// Removed notes that the engine has dropped blocks from a tier.
func (f *Feed) Removed(tier blocktree.Tier, keys ...uint32) {
	f.change(func(t *blocktree.Tree) {
		for _, key := range keys {
			t.Remove(f.slot, key, tier)
		}
	})
}

// Cleared notes that the engine holds nothing.
func (f *Feed) Cleared() {
	for more := true; more; {
		more = false
		f.change(func(t *blocktree.Tree) { more = t.ClearSome(f.slot, atOnce) })
	}
}

func (f *Feed) change(do func(*blocktree.Tree)) {
	x := &f.r.exact
	x.mu.Lock()
	defer x.mu.Unlock()
	if !f.gone && f.life == x.lives {
		do(x.tree)
	}
}

func (x *exact) open(f *Feed, seed uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tree == nil || x.seed != seed {
		x.tree, x.seed, x.slots, x.free = blocktree.New(seed, maxKeys), seed, blocktree.Pool+1, nil
		x.lives++
	}
	f.life = x.lives
	if n := len(x.free); n > 0 {
		f.slot, x.free = x.free[n-1], x.free[:n-1]
		return
	}
	f.slot = x.slots
	x.slots++
}

func (x *exact) close(f *Feed) {
	x.mu.Lock()
	more := !f.gone && f.life == x.lives
	f.gone = true
	x.mu.Unlock()
	for more {
		x.mu.Lock()
		if more = f.life == x.lives && x.tree.ClearSome(f.slot, atOnce); !more && f.life == x.lives {
			x.free = append(x.free, f.slot)
		}
		x.mu.Unlock()
	}
}

// find looks for what the feeds' workers hold. A feed that takes a slot over right behind it is judged by what the former
// held, once.
func (x *exact) find(w *blocktree.Walk, text []byte, root uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.tree != nil {
		w.Find(x.tree, root, text)
	}
}

// worth is what a worker's own holding saves, in blocks of a size: a block that is not on the device must be fetched before it is of
// use.
func worth(h *blocktree.Found, how *policy.Routing) int {
	bytes := float64(h.In[blocktree.Device]) + float64(how.Tiers.Host*float64(h.In[blocktree.Host])) + float64(how.Tiers.Disk*float64(h.In[blocktree.Disk]))
	return int(bytes) / how.BlockBytes
}

// Size is how many blocks the workers of the router have announced, and how many they hold together: what two hold counts
// twice.
func (r *Router) Size() (blocks, held int) {
	r.exact.mu.RLock()
	defer r.exact.mu.RUnlock()
	if r.exact.tree == nil {
		return 0, 0
	}
	return r.exact.tree.Size()
}
