package replay

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// Ways are the ways of choosing that are compared, in this order.
var Ways = []string{"round-robin", "least-load", "session-hash", "predictive", "exact", "true-state"}

// chooser chooses a worker. The router's own code chooses in the last three of Ways.
type chooser interface {
	// choose names the worker for a request; first and end are called when its first token is out and when it has ended.
	choose(now float64, r *Request, workers []*worker) (at int, first, end func())
	// changed takes what a worker's cache has become, as it is announced.
	changed(worker int, stored []blocktree.Block, removed []uint32)
	// late says that announcements take their time.
	late() bool
}

func newChooser(way string, fleet Fleet) (chooser, error) {
	switch way {
	case "round-robin":
		n := 0
		return simple(func(_ *Request, ws []*worker) int { n++; return n % len(ws) }), nil
	case "least-load":
		return simple(leastLoad), nil
	case "session-hash":
		return simple(func(r *Request, ws []*worker) int {
			return int(xxh3.HashString(fmt.Sprint(r.Session)) % uint64(len(ws)))
		}), nil
	case "predictive", "exact", "true-state":
		return newRouted(way, fleet), nil
	}
	return nil, fmt.Errorf("way %q: one of %v expected", way, Ways)
}

// simple ways need no more than to see the workers.
type simple func(*Request, []*worker) int

func (s simple) choose(_ float64, r *Request, ws []*worker) (int, func(), func()) {
	return s(r, ws), func() {}, func() {}
}
func (simple) changed(int, []blocktree.Block, []uint32) {}
func (simple) late() bool                               { return false }

func leastLoad(_ *Request, ws []*worker) int {
	best := 0
	for i, w := range ws {
		if w.waiting < ws[best].waiting {
			best = i
		}
	}
	return best
}

// routed is the real router. A block is pieceBytes of a prompt that is made of the blocks' numbers: the router sees as many
// blocks as the engine.
type routed struct {
	way    string
	router *router.Router
	addrs  map[string]int
	feeds  []*router.Feed
	text   []byte
}

// pieceBytes of a prompt stand for a block.
const (
	pieceBytes = 8
	blockSeed  = 1
)

func hashOf(block int32) uint64 {
	var b [pieceBytes]byte
	binary.LittleEndian.PutUint64(b[:], uint64(block)+1)
	return xxh3.HashSeed(b[:], blockSeed)
}

func newRouted(way string, fleet Fleet) *routed {
	r := &routed{way: way, addrs: map[string]int{}, router: router.New(router.Config{Seed: blockSeed, MaxBlocks: 1 << 22})}
	r.router.SetRouting(policy.Routing{OverlapWeight: fleet.OverlapWeight, MissWeight: fleet.MissWeight, BlockBytes: pieceBytes})
	var ws []router.Worker
	for i := range fleet.Workers {
		addr := fmt.Sprintf("10.0.%d.%d:1", i/250, i%250+1)
		r.addrs[addr] = i
		ws = append(ws, router.Worker{Addr: addr})
		if way != "predictive" {
			r.feeds = append(r.feeds, r.router.Announced(addr, 0, blockSeed))
		}
	}
	r.router.SetWorkers(ws)
	return r
}

func (r *routed) late() bool { return r.way == "exact" }

func (r *routed) changed(worker int, stored []blocktree.Block, removed []uint32) {
	if r.feeds == nil {
		return
	}
	r.feeds[worker].Stored(stored)
	r.feeds[worker].Removed(blocktree.Device, removed...)
}

func (r *routed) choose(now float64, q *Request, _ []*worker) (int, func(), func()) {
	r.text = r.text[:0]
	for _, b := range q.Blocks {
		r.text = binary.LittleEndian.AppendUint64(r.text, uint64(b)+1)
	}
	ask := router.Ask{Prompt: r.text}
	if r.feeds != nil {
		ask.Text = r.text
	}
	c, err := r.router.Pick(time.Unix(0, int64(now*1e9)), ask)
	if err != nil {
		panic(err) // there are workers, and all may be picked
	}
	return r.addrs[c.Addrs[0]], c.Booking.FirstByte, c.Booking.Release
}
