package router

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router/blocktree"
)

// announcer is a worker's feed, and what it has said as a list.
type announcer struct {
	feed *Feed // nil: it announces nothing
	keys map[string]uint32
	in   map[string]map[blocktree.Tier]bool // by the text up to a block's end
	next uint32
}

func (a *announcer) open(p *pool, addr string) {
	*a = announcer{feed: p.Announced(addr, 0, 1), keys: map[string]uint32{}, in: map[string]map[blocktree.Tier]bool{}}
}

// store announces a prompt's blocks of 8 bytes in a tier.
func (a *announcer) store(t testing.TB, prompt []byte, tier blocktree.Tier) {
	var blocks []blocktree.Block
	for end := 8; end <= len(prompt); end += 8 {
		text := string(prompt[:end])
		to, from := text, text[:end-8]
		if a.keys[to] == 0 {
			a.next++
			a.keys[to] = a.next
		}
		if a.in[to] == nil {
			a.in[to] = map[blocktree.Tier]bool{}
		}
		a.in[to][tier] = true
		blocks = append(blocks, blocktree.Block{Key: a.keys[to], Parent: a.keys[from], Length: 8, Hash: xxh3.HashSeed(prompt[end-8:end], 1), Tier: tier})
	}
	if lost := a.feed.Stored(blocks); lost > 0 {
		t.Fatalf("%d blocks are lost", lost)
	}
}

// remove takes one block out of a tier.
func (a *announcer) remove(r *rand.Rand) {
	held := slices.Sorted(maps.Keys(a.in))
	if len(held) == 0 {
		return
	}
	to, tier := held[r.IntN(len(held))], blocktree.Tier(r.IntN(int(blocktree.Shared)))
	a.feed.Removed(tier, a.keys[to])
	if delete(a.in[to], tier); len(a.in[to]) == 0 {
		delete(a.in, to)
	}
}

// worth adds up what is held of a prompt, block by block.
func (a *announcer) worth(prompt []byte) (blocks int, credit float64) {
	for end := 8; end <= len(prompt); end += 8 {
		best := 0.0
		for tier := range a.in[string(prompt[:end])] {
			best = max(best, []float64{1, policy.DefaultTiers.Host, policy.DefaultTiers.Disk}[tier])
		}
		if best == 0 {
			break
		}
		blocks, credit = blocks+1, credit+best
	}
	return blocks, credit
}

// lists is a router beside lists of all that it was told.
type lists struct {
	*pool
	memory
	announcers map[string]*announcer
	waiting    []served
}

// TestAnnouncedAndGuessedAgainstLists: two workers announce blocks and drop them, in three tiers, a third does not; all are sent
// prompts, come and go, and feeds break off. What a pick finds of each is what the lists say.
func TestAnnouncedAndGuessedAgainstLists(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 77))
		l := &lists{newPool(t, Config{OverlapWeight: 1, TTL: time.Minute}, a, b, c), memory{ttl: time.Minute, size: 8, alive: map[string]int{}},
			map[string]*announcer{a: {}, b: {}, c: {}}, nil}
		for range 1500 {
			l.now = l.now.Add(time.Duration(r.IntN(3)) * time.Second)
			l.step(r)
			l.index.check(t)
		}
		for _, w := range l.announcers {
			if w.feed != nil {
				w.feed.Close()
			}
		}
		if blocks, held := l.Size(); blocks != 0 || held != 0 {
			t.Errorf("%d blocks, %d held are left", blocks, held)
		}
	}
}

// step does one thing of all that may happen.
func (l *lists) step(r *rand.Rand) {
	prompt, addr := variant(r), []string{a, b}[r.IntN(2)]
	w := l.announcers[addr]
	switch n := r.IntN(12); {
	case n == 0:
		if w.feed != nil {
			w.feed.Close()
		}
		*w = announcer{}
	case n == 1:
		w.open(l.pool, addr)
	case n == 2:
		l.set([]string{a, b, c}[r.IntN(2):]...)
		if l.byName[name{a, 0}] == nil {
			l.lives++
			l.alive[a] = l.lives
		}
	case n < 5 && w.feed != nil:
		w.store(l.t, prompt, blocktree.Tier(r.IntN(int(blocktree.Shared))))
	case n < 7 && w.feed != nil:
		w.remove(r)
	case n < 10 && len(l.waiting) > 0:
		i := r.IntN(len(l.waiting))
		l.waiting[i].end(l.pool, r.IntN(2) == 0)
		l.waiting = slices.Delete(l.waiting, i, i+1)
	default:
		l.memory.sent = slices.DeleteFunc(l.memory.sent, func(s *sentPrompt) bool { return !s.pending && !l.now.Before(s.until) })
		l.pick(prompt)
	}
}

// pick holds what it finds against the lists, and has the prompt sent.
func (l *lists) pick(prompt []byte) {
	l.t.Helper()
	would, err := l.Would(l.now, Ask{Text: prompt})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, k := range would.all {
		blocks, credit := l.announcers[k.w.addr].worth(prompt)
		guessed := l.overlap(l.now, prompt, k.w.addr)
		if int(k.guessed) != guessed || k.why.announced.Blocks != blocks || int(k.held) != max(guessed, int(credit)) {
			l.t.Fatalf("%s: %d guessed and %d announced, %d held of %d; the lists say %d and %d, and %.2f",
				k.w.addr, k.guessed, k.why.announced.Blocks, k.held, would.Blocks, guessed, blocks, credit)
		}
	}
	choice, err := l.Pick(l.now, Ask{Text: prompt})
	if err != nil {
		l.t.Fatal(err)
	}
	addr := choice.Addrs[0]
	s := &sentPrompt{prompt: prompt, worker: addr, life: l.alive[addr], pending: l.announcers[addr].feed != nil, until: l.now.Add(l.ttl)}
	if s.pending {
		s.until = l.now.Add(burst)
	}
	l.sent, l.waiting = append(l.sent, s), append(l.waiting, served{s, choice.Booking})
}

// served is a request that was sent, with its booking.
type served struct {
	sent    *sentPrompt
	booking *Booking
}

func (s served) end(p *pool, firstByte bool) {
	if firstByte {
		s.booking.FirstByte()
		if until := p.clock.Add(burst); s.sent.pending && until.After(s.sent.until) { // its clock is the last pick's
			s.sent.until = until
		}
	}
	s.sent.pending = false
	s.booking.Release()
}

// TestEverythingAtOnce is for the race detector: feeds come, announce, drop and go, workers come and go, prompts are picked for,
// served and given up. At the end nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1, MaxBlocks: 4000}, a, b, c)
	var some sync.WaitGroup
	for g := range 8 {
		some.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for i := range 150 {
				switch {
				case g < 2: // a worker's announcements
					f := p.Announced([]string{a, b}[g], 0, 1)
					announce(f, variant(r), blocktree.Device)
					announce(f, variant(r), blocktree.Shared)
					f.Removed(blocktree.Device, 3, 2, 1)
					f.Doubt(r.IntN(2) == 0)
					if r.IntN(4) == 0 {
						f.Cleared()
					}
					f.Close()
				case g == 2 && i%10 == 0:
					p.set([]string{a, b, c}[:1+r.IntN(3)]...)
				default:
					text := variant(r)
					choice, err := p.Pick(noon.Add(time.Duration(i)*time.Second), Ask{Text: text, Prompt: text, Begins: r.IntN(3) == 0})
					if err != nil {
						t.Error(err)
						return
					}
					if r.IntN(2) == 0 {
						choice.Booking.FirstByte()
					}
					choice.Booking.Release()
				}
			}
		})
	}
	some.Wait()
	p.index.check(t)
	for _, l := range p.Load() {
		if l.PrefillBlocks != 0 || l.DecodeBlocks != 0 || l.Requests != 0 {
			t.Errorf("left over: %+v", l)
		}
	}
	if blocks, held := p.Size(); blocks != 0 || held != 0 {
		t.Errorf("%d blocks, %d held are left", blocks, held)
	}
	p.now = noon.Add(time.Hour)
	p.pick("").Booking.Release()
	if p.index.size != 0 {
		t.Errorf("%d words are remembered for good", p.index.size)
	}
}

// TestMoreThanMayBeHeldIsLost: announcements that exceed the bound are told to be lost; what was taken before stays, and room
// that is given up is used again.
func TestMoreThanMayBeHeldIsLost(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1, MaxHeld: 1000}, a, b)
	onA, onB := p.Announced(a, 0, 1), p.Announced(b, 0, 1)
	if lost := announce(onA, []byte(text(900, "a")), blocktree.Device); lost != 0 {
		t.Errorf("%d are lost", lost)
	}
	if lost := announce(onB, []byte(text(900, "b")), blocktree.Device); lost != 800 {
		t.Errorf("%d are lost, want 800", lost)
	}
	if _, held := p.Size(); held != 1000 {
		t.Errorf("%d held, want 1000", held)
	}
	if c := p.ask(Ask{Text: []byte(text(900, "a"))}); c.Held.Blocks != 900 {
		t.Errorf("%+v", c.Held)
	}
	onA.Close()
	again := p.Announced(b, 0, 1)
	if lost := announce(again, []byte(text(900, "b")), blocktree.Device); lost != 0 {
		t.Errorf("%d are lost though there is room", lost)
	}
}

// TestMemoryIsGivenBack: a worker that goes takes what it held along.
func TestMemoryIsGivenBack(t *testing.T) {
	p := newPool(t, Config{OverlapWeight: 1}, a)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range 5 {
		f := p.Announced(a, 0, 1)
		for k := range 20 {
			first := uint32(1 + k*1000)
			var blocks []blocktree.Block
			for j := range uint32(1000) {
				b := blocktree.Block{Key: first + j, Parent: first + j - 1, Length: 8, Hash: uint64(i*20+k)<<32 | uint64(j)*0x9e3779b9}
				if j == 0 {
					b.Parent = 0
				}
				blocks = append(blocks, b)
			}
			if lost := f.Stored(blocks); lost > 0 {
				t.Fatal(fmt.Sprint(lost, " are lost"))
			}
		}
		f.Close()
	}
	if blocks, held := p.Size(); blocks != 0 || held != 0 {
		t.Errorf("%d blocks, %d held are left", blocks, held)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}
