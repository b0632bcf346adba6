package limitstest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// together runs f n times, all at once, and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	wg.Wait()
}

func parallelPlaces(t *testing.T, w *world) {
	for name, l := range map[string]policy.Limit{"rate": rate("r", 0.001, 10), "concurrency": places("p", 10)} {
		var admitted atomic.Int64
		together(200, func(i int) {
			ask := limits.Ask{Admission: fmt.Sprint(name, i), Limits: []policy.Limit{places("wide", 1000), l}}
			at := w.now
			if w.tick == time.Nanosecond { // a store that goes by its own clock does not see its askers' out of order
				at = at.Add(time.Duration(i) * time.Microsecond)
			}
			d, err := w.l.Acquire(t.Context(), at, ask)
			if err != nil {
				t.Error(err)
			}
			if d.Admitted {
				admitted.Add(1)
			}
		})
		equal(t, name, admitted.Load(), 10)
	}
	w.wait(time.Millisecond)
	w.exactly(1000-20, places("wide", 1000))
}

func parallelSame(t *testing.T, w *world) {
	ls := []policy.Limit{rate("r", 0.001, 10), places("p", 10)}
	together(100, func(int) {
		d, err := w.l.Acquire(t.Context(), w.now, limits.Ask{Admission: "one", Limits: ls})
		if err != nil || !d.Admitted {
			t.Errorf("%v, %v", d, err)
		}
	})
	w.exactly(9, ls...)
}

// parallelLives runs whole lives of requests, with renewals and releases that come twice or from two goroutines at once.
// At no time may more be open than there are places, and at the end all places must be free.
func parallelLives(t *testing.T, w *world) {
	p := places("p", 7)
	var open, passed atomic.Int64
	together(32, func(g int) {
		r := rand.New(rand.NewPCG(uint64(g), 1))
		for i := range 200 {
			d, err := w.l.Acquire(t.Context(), w.now, limits.Ask{Admission: fmt.Sprint(g, "/", i), Limits: []policy.Limit{p}})
			if err != nil {
				t.Error(err)
			}
			if !d.Admitted {
				continue
			}
			passed.Add(1)
			if n := open.Add(1); n > 7 {
				t.Errorf("%d open in 7 places", n)
			}
			if r.IntN(2) == 0 {
				if !w.renewed(w.now, d.Hold) {
					t.Error("not renewed")
				}
			}
			open.Add(-1)
			together(1+r.IntN(2), func(int) {
				if err := w.l.Release(t.Context(), w.now, d.Hold, limits.Used{}); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
	})
	if passed.Load() < 200 {
		t.Errorf("only %d of 6400 passed", passed.Load())
	}
	w.exactly(7, p)
}
