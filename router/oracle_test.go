package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// book is a request as the dumb router knows it. Loads are added up from these anew each time they are needed.
type book struct {
	booking *Booking
	worker  string // "": a stranger
	life    int
	held    map[string]int // of each candidate
	blocks  int
	decodes bool
}

// dumb is a router that keeps lists of all that happened and computes everything from them.
type dumb struct {
	memory
	weight float64
	miss   float64
	addrs  []string // sorted
	books  []*book
	picked map[string]int // when each was picked last, by worker and life
	picks  int
}

func (d *dumb) loadOf(addr string) (l load) {
	for _, k := range d.books {
		switch {
		case k.worker != addr || k.life != d.alive[addr]:
		case k.decodes:
			l.add(load{decode: k.blocks, requests: 1})
		default:
			l.add(whole(k.blocks, k.held[addr]))
		}
	}
	return l
}

// best is the worker that must be picked of the eligible ones.
func (d *dumb) best(now time.Time, prompt []byte, eligible []string) string {
	rank := func(addr string) string {
		l := d.loadOf(addr)
		missing := (len(prompt)+d.size-1)/d.size - d.overlap(now, prompt, addr)
		prefill := float64(missing+l.prefill) + d.miss*float64(missing)
		return fmt.Sprintf("%012.3f %06d %09d", d.weight*prefill+float64(l.decode), l.requests, d.picked[d.name(addr)])
	}
	return slices.MinFunc(eligible, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
}

func (d *dumb) name(addr string) string { return fmt.Sprint(addr, "/", d.alive[addr]) }

// set makes these the workers; those that come anew begin another life.
func (d *dumb) set(addrs []string) {
	for _, addr := range addrs {
		if !slices.Contains(d.addrs, addr) {
			d.lives++
			d.alive[addr] = d.lives
		}
	}
	d.addrs = slices.Sorted(slices.Values(addrs))
}

func subsetOf[T any](r *rand.Rand, all []T) []T {
	some := []T{}
	for _, v := range all {
		if r.IntN(3) > 0 {
			some = append(some, v)
		}
	}
	return some
}

// TestAgainstTheDumbRouter lives through random sequences of everything that can happen, in any order and twice: picks
// with and without subsets, first bytes, moves, releases, workers that come and go while they have requests.
func TestAgainstTheDumbRouter(t *testing.T) {
	for seed := range uint64(8) {
		weight, miss := []float64{1, 0, 0.5, 3}[seed%4], []float64{0, 1, 0.5}[seed%3]
		r := rand.New(rand.NewPCG(seed, 9))
		all := []string{"10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[::1]:8000", "[2001:db8::1]:8000"}
		d := &dumb{memory: memory{ttl: time.Minute, size: 8, alive: map[string]int{}}, weight: weight, miss: miss, picked: map[string]int{}}
		p := newPool(t, Config{OverlapWeight: weight, MissWeight: miss, TTL: time.Minute})
		for range 1000 {
			p.now = p.now.Add(time.Duration(r.IntN(3)) * time.Second)
			switch r.IntN(12) {
			case 0:
				ws := subsetOf(r, all)
				p.set(ws...)
				d.set(ws)
			case 1, 2, 3, 4:
				pickBoth(p, d, r)
			default:
				if len(d.books) > 0 {
					happen(d, r, all)
				}
			}
			same(p, d)
		}
		for _, k := range d.books {
			k.booking.Release()
		}
		d.books = nil
		same(p, d)
	}
}

func pickBoth(p *pool, d *dumb, r *rand.Rand) {
	p.t.Helper()
	prompt, eligible := variant(r), d.addrs
	var subset []string
	if r.IntN(3) == 0 {
		subset = subsetOf(r, d.addrs)
		eligible = subset
	}
	choice, err := p.Pick(p.now, Ask{Prompt: prompt, Subset: subset})
	switch {
	case len(d.addrs) == 0:
		if !errors.Is(err, ErrNoWorker) {
			p.t.Fatalf("no workers: %v, %v", choice.Addrs, err)
		}
		return
	case len(eligible) == 0:
		if !errors.Is(err, ErrNoneEligible) {
			p.t.Fatalf("none eligible: %v, %v", choice.Addrs, err)
		}
		return
	case err != nil:
		p.t.Fatal(err)
	}
	want := d.best(p.now, prompt, eligible)
	if choice.Addrs[0] != want {
		p.t.Fatalf("picked %v, want %s\n%s", choice.Addrs, want, choice.Explain())
	}
	k := &book{choice.Booking, want, d.alive[want], map[string]int{}, choice.Blocks, false}
	for _, addr := range choice.Addrs {
		k.held[addr] = d.overlap(p.now, prompt, addr)
	}
	if choice.Overlap != k.held[want] {
		p.t.Fatalf("overlap %d, want %d", choice.Overlap, k.held[want])
	}
	d.picks++
	d.picked[d.name(want)] = d.picks
	d.books = append(d.books, k)
	d.sent = append(d.sent, &sentPrompt{prompt: prompt, worker: want, life: d.alive[want], until: p.now.Add(d.ttl)})
}

// happen does something to a random request.
func happen(d *dumb, r *rand.Rand, all []string) {
	i := r.IntN(len(d.books))
	k := d.books[i]
	switch r.IntN(4) {
	case 0:
		k.booking.FirstByte()
		k.decodes = true
	case 1:
		addr := all[r.IntN(len(all))]
		k.booking.Serving(addr)
		k.worker, k.life = addr, d.alive[addr]
		if !slices.Contains(d.addrs, addr) {
			k.worker = ""
		}
	default:
		k.booking.Release()
		if r.IntN(2) == 0 {
			k.booking.Release()
			k.booking.FirstByte()
			k.booking.Serving(all[0])
		}
		d.books = slices.Delete(d.books, i, i+1)
	}
}

func same(p *pool, d *dumb) {
	p.t.Helper()
	p.index.check(p.t)
	loads := p.Load()
	if len(loads) != len(d.addrs) {
		p.t.Fatalf("%d workers, want %d", len(loads), len(d.addrs))
	}
	for i, got := range loads {
		want := d.loadOf(d.addrs[i])
		if got.PrefillBlocks != want.prefill || got.DecodeBlocks != want.decode || got.Requests != want.requests {
			p.t.Fatalf("load %+v, want %+v", got, want)
		}
		if got.PrefillBlocks < 0 || got.DecodeBlocks < 0 || got.Requests < 0 {
			p.t.Fatalf("negative: %+v", got)
		}
	}
}
