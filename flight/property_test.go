package flight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
)

// Random interleavings of everything that can happen, one after the other, against the oracle.
func TestAnyOrderOfEvents(t *testing.T) {
	written := 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		r := newRig(Config{Grace: 2 * time.Second, LeaseEvery: 3 * time.Second})
		world := map[string]*oracle{}
		for i := range 12 {
			world[fmt.Sprint("a", i)] = &oracle{reserved: int64(i%3) * 700}
		}
		closed := false
		r.onUsage = func(rec *usagev1.Record) {
			o := world[rec.Admission]
			all := o.first()
			last := o.last()
			want, anomalies := Outcome(last.Metered, last.Logged)
			if rec.Outcome != want || !slices.Equal(rec.Anomalies[:len(anomalies)], anomalies) {
				t.Fatalf("seed %d: %s is journaled as %s %v, the facts say %s %v", seed, rec.Admission, rec.Outcome, rec.Anomalies, want, anomalies)
			}
			if !all.settled() && !closed && r.clock().Sub(o.endedAt) < 2*time.Second {
				t.Fatalf("seed %d: %s was journaled too early", seed, rec.Admission)
			}
			o.done = true
			written++
		}
		for range 250 {
			id := fmt.Sprint("a", rng.IntN(12))
			o := world[id]
			switch rng.IntN(12) {
			case 0, 1, 2:
				ask(t, r, o, id)
			case 3, 4:
				b := &booking{}
				if ok := r.Book(id, b); ok != (o.opened && o.endedAt.IsZero()) {
					t.Fatalf("seed %d: Book says %v", seed, ok)
				} else if ok {
					o.bookings = append(o.bookings, b)
				} else if b.released != 0 {
					t.Fatalf("seed %d: a booking that was not taken was released", seed)
				}
			case 5:
				switch rng.IntN(3) {
				case 0:
					r.FirstByte(id, "w", r.clock(), passing(randomReport(rng)))
				case 1:
					r.Began(id, "endpoint", "w")
				case 2:
					pass(r, o, id, randomFacts(rng).Metered)
				}
			case 6, 7, 8:
				tell(r, o, id, randomFacts(rng))
			case 9, 10:
				r.pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
			case 11:
				if rng.IntN(20) == 0 && !closed {
					closed = true
					loseAll(r, world)
					r.Close(context.Background())
				} else if rng.IntN(20) == 0 {
					lose(r, world)
				}
			}
			check(t, seed, r, world)
			ledger(t, seed, r, world)
		}
		closed = true
		loseAll(r, world)
		r.Close(context.Background())
		check(t, seed, r, world)
		if standing := ledger(t, seed, r, world); standing != 0 {
			t.Fatalf("seed %d: %d tokens are still reserved", seed, standing)
		}
		for id, o := range world {
			if n := len(r.of(id, "usage")); o.opened && n != 1 {
				t.Fatalf("seed %d: %s has %d usage records", seed, id, n)
			}
		}
		if r.Len() != 0 {
			t.Fatalf("seed %d: %d flights left", seed, r.Len())
		}
	}
	if written < 2000 {
		t.Errorf("only %d records: the test shows little", written)
	}
}

// All at once, from many goroutines, with the real loop running: nothing is freed or written twice, or forgotten.
func TestConcurrentEvents(t *testing.T) {
	const flights = 300
	r := newRig(Config{Grace: time.Millisecond, LeaseEvery: time.Millisecond, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var loop, all sync.WaitGroup
	loop.Go(func() { _ = r.Run(ctx) })
	opened := make([][]bool, flights)
	taken := make([][]*booking, flights)
	for i := range flights {
		id := fmt.Sprint("a", i)
		opened[i], taken[i] = make([]bool, 2), make([]*booking, 2)
		for ask := range 2 {
			all.Go(func() {
				opened[i][ask] = r.openWith(id, "key", []limits.Hold{hold(id), quotas(id, 500)}[i%2])
				if b := new(booking); r.Book(id, b) {
					taken[i][ask] = b
				} else if b.frees() != 0 {
					t.Error("a booking that was not taken was released")
				}
			})
		}
		all.Go(func() { r.FirstByte(id, "w", time.Now(), nil) })
		if i%10 != 0 {
			all.Go(func() { r.End(id, Facts{Metered: whole()}) })
		}
		if i%7 != 0 {
			all.Go(func() { r.End(id, Facts{Logged: ended()}) })
		}
		if i%50 == 0 {
			all.Go(func() { r.Lose(time.Now(), "envoy_gone") })
		}
	}
	all.Wait()
	r.Close(context.Background())
	cancel()
	loop.Wait()
	for i := range flights {
		id := fmt.Sprint("a", i)
		if opened[i][0] == opened[i][1] {
			t.Errorf("%s was opened by both or none: %v", id, opened[i])
		}
		r.one(t, id, "admitted")
		r.one(t, id, "usage")
		if n := r.freed(id); n != 1 {
			t.Errorf("%s: lease freed %d times", id, n)
		}
		for _, b := range taken[i] {
			if b != nil && b.frees() != 1 {
				t.Errorf("%s: booking released %d times", id, b.frees())
			}
		}
	}
	if r.Len() != 0 {
		t.Errorf("%d flights left", r.Len())
	}
}
