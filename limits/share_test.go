package limits

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// event is one change of a count: at a door, in the store too or there alone.
type event struct {
	door             int
	shared           bool
	day              time.Time // in which it counts
	requests, tokens int64
}

// shareWorld is a store, the memories of its doors, and all that happened, from which an obvious oracle reckons what counts.
type shareWorld struct {
	t      *testing.T
	now    time.Time
	limit  policy.Limit
	store  *Memory
	doors  []*Memory
	events []event
	saw    []saw // by door, the last that it believed
	asked  []saw // by door, one that it has not heard of yet
	open   []opened
}

type saw struct {
	seen *seen
	at   time.Time
	from int // of events: those before it were there when the door glanced
	till int // those before it were there when the store was read
}

type opened struct {
	door int
	hold Hold
	day  time.Time
}

// counted adds up the events of one kind of quota that hold and are of the current period.
func (w *shareWorld) counted(k Kind, from, till int, holds func(e *event) bool) (n int64) {
	for i := from; i < till; i++ {
		e := &w.events[i]
		if !holds(e) || !w.current(k, e.day) {
			continue
		}
		if k.ofTokens() {
			n += e.tokens
		} else {
			n += e.requests
		}
	}
	return n
}

func (w *shareWorld) current(k Kind, at time.Time) bool {
	a, _ := k.span().Bounds(at)
	b, _ := k.span().Bounds(w.now)
	return a == b
}

// want is the door's part of the store's total when it looked, and on top what came since then, and what it did alone.
func (w *shareWorld) want(door int, k Kind) int64 {
	s, n := &w.saw[door], int64(0)
	if s.seen != nil && w.current(k, s.at) {
		total := w.counted(k, 0, s.till, func(e *event) bool { return e.shared })
		n = (total + int64(len(w.doors)) - 1) / int64(len(w.doors))
	}
	n += w.counted(k, s.from, len(w.events), func(e *event) bool { return e.door == door && e.shared })
	n += w.counted(k, 0, len(w.events), func(e *event) bool { return e.door == door && !e.shared })
	return max(0, n)
}

func (w *shareWorld) ask(door int, name string, tokens int64, shared bool) {
	ask, d, err := Ask{Admission: name, Limits: []policy.Limit{w.limit}, Tokens: tokens}, Decision{}, error(nil)
	if shared {
		d, err = w.store.Acquire(w.t.Context(), w.now, ask)
		d.Hold.local = false
		w.doors[door].adopt(w.now, ask, d)
	} else {
		d, err = w.doors[door].Acquire(w.t.Context(), w.now, ask)
	}
	if err != nil || !d.Admitted {
		w.t.Fatal(d, err)
	}
	w.events = append(w.events, event{door, shared, w.now, 1, tokens})
	w.open = append(w.open, opened{door, d.Hold, w.now})
}

func (w *shareWorld) end(i int, used Used) {
	o := w.open[i]
	w.open = append(w.open[:i], w.open[i+1:]...)
	e := event{door: o.door, shared: !o.hold.local, day: o.day}
	if used.Tokens >= 0 {
		e.tokens = used.Tokens - o.hold.Reserved
	}
	if used.Unserved {
		e.requests = -1
	}
	for range 2 { // twice is once
		_ = w.doors[o.door].Release(w.t.Context(), w.now, o.hold, used)
		if e.shared {
			_ = w.store.Release(w.t.Context(), w.now, o.hold, used)
		}
	}
	w.events = append(w.events, e)
}

func (w *shareWorld) glance(door int) {
	gs, _ := w.doors[door].glances(0, 10)
	if len(gs) > 0 {
		w.asked[door] = saw{seen: &seen{glances: gs}, from: len(w.events), till: -1}
	}
}

func (w *shareWorld) read(door int) {
	if s := &w.asked[door]; s.seen != nil && s.till < 0 {
		s.seen.totals, _ = w.store.Totals(w.t.Context(), w.now, idsOf(s.seen.glances))
		s.till, s.at = len(w.events), w.now
	}
}

func (w *shareWorld) believe(door int) {
	if s := w.asked[door]; s.seen != nil && s.till >= 0 {
		w.doors[door].shareIn(s.seen.glances, shareOf(s.seen.totals, len(w.doors)))
		w.saw[door], w.asked[door] = s, saw{}
	}
}

func (w *shareWorld) check() {
	w.t.Helper()
	for i, m := range w.doors {
		all, err := m.Look(w.t.Context(), w.now, []policy.Limit{w.limit})
		if err != nil || len(all) != len(long) {
			w.t.Fatal(all, err)
		}
		for _, s := range all {
			if want := w.want(i, s.Kind); s.Used != want {
				w.t.Fatalf("after %d events door %d counts %d of %s, want %d", len(w.events), i, s.Used, s.Kind, want)
			}
		}
	}
}

// together checks that doors that have all just looked cannot pass the quota together, if the store goes away now.
func (w *shareWorld) together(most int64) {
	for d := range w.doors {
		w.asked[d] = saw{}
		w.glance(d)
		w.read(d)
		w.believe(d)
	}
	w.check()
	for _, k := range long {
		var room int64
		for d := range w.doors {
			if w.saw[d].till == len(w.events) { // else it has not used the limit yet: it does not know of the others
				room += max(0, most/int64(len(w.doors))-w.want(d, k))
			}
		}
		if left := max(0, most-w.counted(k, 0, len(w.events), func(e *event) bool { return e.shared })); room > left {
			w.t.Fatalf("the doors have %d of %s to share, and %d are left", room, k, left)
		}
	}
}

// What a door counts is its part of what the store counted, and what it knows better: whatever happens between a look's steps.
func TestShareAgainstTheOracle(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := &shareWorld{
				t: t, now: noon.AddDate(0, 0, 29), store: NewMemory(MemoryConfig{LeaseTTL: 1e6 * time.Hour}),
				limit: policy.Limit{ID: "l", RequestsPerDay: 1e9, TokensPerDay: 1e9, RequestsPerMonth: 1e9, TokensPerMonth: 1e9},
			}
			for range 1 + r.IntN(3) {
				w.doors = append(w.doors, NewMemory(MemoryConfig{LeaseTTL: 1e6 * time.Hour}))
			}
			w.saw, w.asked = make([]saw, len(w.doors)), make([]saw, len(w.doors))
			for i := range 150 {
				door := r.IntN(len(w.doors))
				switch n := r.IntN(100); {
				case n < 30:
					w.ask(door, fmt.Sprint(i), r.Int64N(1000), n < 22)
				case n < 55 && len(w.open) > 0:
					w.end(r.IntN(len(w.open)), Used{Tokens: r.Int64N(1500) - 100, Unserved: n%5 == 0})
				case n < 68:
					w.glance(door)
				case n < 81:
					w.read(door)
				case n < 94:
					w.believe(door)
				case n < 96:
					w.now = w.now.Add(time.Duration(r.IntN(20)) * time.Hour)
				default:
					w.together(r.Int64N(50_000))
				}
				w.check()
			}
		})
	}
}
