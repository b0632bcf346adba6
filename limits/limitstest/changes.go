package limitstest

import (
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

func raised(t *testing.T, w *world) {
	w.exactly(5, rate("team", 1, 5))
	w.exactly(5, rate("team", 10, 10)) // five of ten are used, whatever the rate was
	w.wait(time.Second)
	w.exactly(10, rate("team", 10, 10))

	a := w.admit(places("key", 1))
	w.refuse(places("key", 1))
	w.exactly(2, places("key", 3))
	w.release(a)
}

func lowered(t *testing.T, w *world) {
	w.exactly(100, rate("team", 100, 100))
	s := w.refuse(rate("team", 1, 10))
	equal(t, "wait", s.RetryAfter, time.Second) // not for the ninety too many
	w.wait(time.Second)
	w.exactly(1, rate("team", 1, 10))

	var holds []limits.Hold
	for range 5 {
		holds = append(holds, w.admit(places("key", 5)))
	}
	s = w.refuse(places("key", 2))
	equal(t, "left", s.Remaining, 0)
	for _, h := range holds[:3] {
		w.release(h)
		w.refuse(places("key", 2))
	}
	w.release(holds[3])
	w.exactly(1, places("key", 2))
}

func removed(t *testing.T, w *world) {
	r, p := rate("team", 1, 1), places("key", 1)
	h := w.admit(r, p)
	w.refuse(r, p)
	w.admit(r2(p, 5)) // the team's limit is gone, the key's raised
	w.admit()
	w.release(h)
	w.exactly(0, p) // one of five is still there
}

func added(t *testing.T, w *world) {
	h := w.admit(places("team", 9))
	r, p := rate("key", 1, 1), places("model", 1)
	w.exactly(1, places("team", 9), r, p)
	w.release(h) // holds nothing of the added ones
	w.exactly(0, r)
	w.exactly(1, p)
	w.wait(time.Second)
	w.exactly(1, r)
}

func r2(l policy.Limit, n int) policy.Limit {
	l.Concurrency = n
	return l
}

func binding(t *testing.T, w *world) {
	wide, narrow, full := rate("wide", 10, 100), rate("narrow", 1, 10), places("full", 4)
	d := w.ask(wide, narrow, full)
	equal(t, "least share left", d.Binding().Limit.ID, "full")
	equal(t, "kind", d.Binding().Kind, limits.Concurrency)
	equal(t, "left", d.Binding().Remaining, 3)
	w.exactly(9, narrow)
	w.exactly(99, wide)
	w.wait(50 * time.Millisecond)
	s := w.refuse(wide, narrow)
	equal(t, "longest wait", s.Limit.ID, "narrow")
	equal(t, "wait", s.RetryAfter, 950*time.Millisecond)
	equal(t, "reset", s.Reset, 10*time.Second-50*time.Millisecond)
	s = w.refuse(narrow, wide)
	equal(t, "longest wait, other order", s.Limit.ID, "narrow")

	both := policy.Limit{ID: "both", RequestsPerSecond: 1, Burst: 9, Concurrency: 2}
	d = w.ask(both)
	equal(t, "kind", d.Binding().Kind, limits.Concurrency)
	equal(t, "first of equals", w.ask(places("a", 2), places("b", 2)).Binding().Limit.ID, "a")
}

func clockBack(t *testing.T, w *world) {
	r, p := rate("team", 1, 2), places("key", 1)
	h := w.admit(p)
	w.exactly(2, r)
	w.wait(-time.Hour)
	w.exactly(0, r)
	w.exactly(0, p)
	w.release(h)
	w.exactly(1, p)
	w.wait(time.Hour + 2*time.Second)
	w.exactly(2, r)
}

func clockLeap(t *testing.T, w *world) {
	r, p := rate("team", 0.001, 3), places("key", 2)
	w.admit(r, p)
	w.admit(r, p)
	w.wait(50 * 365 * 24 * time.Hour)
	w.exactly(3, r)
	w.exactly(2, p)
}
