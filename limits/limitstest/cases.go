package limitstest

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

func badAsks(t *testing.T, w *world) {
	one := places("k", 1)
	d, err := w.l.Acquire(t.Context(), w.now, limits.Ask{Limits: []policy.Limit{one}})
	if !errors.Is(err, limits.ErrNoAdmission) || d.Admitted {
		t.Errorf("no admission: %v, %v", d, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err = w.l.Acquire(ctx, w.now, limits.Ask{Admission: "gone", Limits: []policy.Limit{one}})
	if !errors.Is(err, context.Canceled) || d.Admitted {
		t.Errorf("context done: %v, %v", d, err)
	}
	w.exactly(1, one)
}

func noLimits(t *testing.T, w *world) {
	d := w.ask()
	if !d.Admitted || d.Binding() != nil || len(d.Hold.Leases) != 0 {
		t.Errorf("got %+v", d)
	}
	d = w.ask(policy.Limit{ID: "says nothing"})
	if !d.Admitted || d.Binding() != nil {
		t.Errorf("a limit without values: %+v", d)
	}
}

func burstThenRate(t *testing.T, w *world) {
	l := rate("team", 10, 5)
	for left := int64(4); left >= 0; left-- {
		d := w.ask(l)
		if !d.Admitted {
			t.Fatalf("in the burst: %s", d)
		}
		equal(t, "left", d.Binding().Remaining, left)
		equal(t, "max", d.Binding().Max, 5)
		equal(t, "reset", d.Binding().Reset, time.Duration(5-left)*100*time.Millisecond)
	}
	equal(t, "wait", w.refuse(l).RetryAfter, 100*time.Millisecond)
	w.wait(100*time.Millisecond - w.tick)
	equal(t, "wait", w.refuse(l).RetryAfter, w.tick)
	w.wait(w.tick)
	w.exactly(1, l)
	w.wait(time.Hour)
	w.exactly(5, l)
}

func noDoubleBurst(t *testing.T, w *world) {
	l := rate("team", 10, 10)
	w.wait(999 * time.Millisecond) // just before a full second
	w.exactly(10, l)
	w.wait(2 * time.Millisecond) // just after it
	w.exactly(0, l)
	w.wait(98 * time.Millisecond)
	w.exactly(1, l)
}

func nth(t *testing.T, w *world) {
	l := places("key", 3)
	for left := int64(2); left >= 0; left-- {
		d := w.ask(l)
		if !d.Admitted {
			t.Fatalf("place free: %s", d)
		}
		equal(t, "left", d.Binding().Remaining, left)
		equal(t, "leases", len(d.Hold.Leases), 1)
	}
	s := w.refuse(l)
	equal(t, "kind", s.Kind, limits.Concurrency)
	equal(t, "max", s.Max, 3)
	equal(t, "left", s.Remaining, 0)
	equal(t, "wait", s.RetryAfter, limits.ConcurrencyRetry)
}

func refusalChangesNothing(t *testing.T, w *world) {
	platform, team, key := rate("platform", 100, 4), places("team", 4), rate("key", 1, 1)
	model := places("model", 1)
	w.admit(key)
	for range 20 { // key refuses, the levels above must not notice
		w.refuse(platform, team, model, key)
	}
	w.exactly(4, platform)
	w.exactly(4, team)
	w.exactly(1, model)
	w.wait(time.Second)
	w.exactly(1, key)
}

func countsOnce(t *testing.T, w *world) {
	r, p := rate("team", 1, 2), places("key", 2)
	first := w.as("one", r, p)
	again := w.as("one", r, p)
	equal(t, "said again", again.String(), first.String())
	w.release(first.Hold)
	late := w.as("one", r, p)
	equal(t, "said after release", late.String(), first.String())
	w.exactly(2, p)
	w.exactly(1, r)
}

func refusedAgain(t *testing.T, w *world) {
	p := places("key", 1)
	h := w.admit(p)
	equal(t, "admitted", w.as("late", p).Admitted, false)
	w.release(h)
	equal(t, "admitted", w.as("late", p).Admitted, true)
	w.exactly(0, p)
}

func releaseTwice(t *testing.T, w *world) {
	p := places("key", 2)
	a, b := w.admit(p), w.admit(p)
	w.release(a)
	w.release(a)
	w.release(limits.Hold{Admission: "never seen", Leases: []string{"key"}})
	w.release(limits.Hold{})
	w.exactly(1, p)
	w.release(b)
	w.release(a)
	w.exactly(2, p)
}

func releaseAlone(t *testing.T, w *world) {
	team, key := places("team", 1), places("key", 1)
	h := w.admit(team, key)
	equal(t, "leases", len(h.Leases), 2)
	w.release(h) // whatever the policy says by now
	w.exactly(1, team)
	w.exactly(1, key)
}

func expire(t *testing.T, w *world) {
	p := places("key", 2)
	a := w.admit(p)
	w.wait(TTL / 2)
	w.admit(p)
	w.wait(TTL/2 - w.tick)
	w.exactly(0, p)
	w.wait(w.tick)
	w.exactly(1, p)
	w.release(a) // too late to free anything
	w.exactly(1, p)
	w.wait(TTL / 2)
	w.exactly(2, p)
}

func renew(t *testing.T, w *world) {
	p := places("key", 1)
	h := w.admit(p)
	for range 10 {
		w.wait(TTL - w.tick)
		if !w.renewed(w.now, h) || !w.renewed(w.now.Add(-TTL/2), h) { // late on the way: must not shorten
			t.Fatal("not renewed")
		}
	}
	w.wait(TTL - w.tick)
	w.exactly(0, p)
	w.wait(w.tick)
	if w.renewed(w.now, h) {
		t.Error("renewed after expiry")
	}
	w.exactly(1, p)
	h = w.admit(p)
	w.release(h)
	if w.renewed(w.now, h) {
		t.Error("renewed after release")
	}
	w.exactly(1, p)
}

// Of many holds at once exactly those are lost that are gone.
func renewMany(t *testing.T, w *world) {
	p := places("key", 300)
	var all, gone []limits.Hold
	for i := range 300 {
		h := w.admit(p)
		all = append(all, h)
		if i%3 == 0 {
			gone = append(gone, h)
		}
	}
	for _, h := range gone {
		w.release(h)
	}
	w.wait(TTL - w.tick)
	lost, err := w.l.Renew(t.Context(), w.now, all)
	if err != nil || !reflect.DeepEqual(lost, gone) {
		t.Fatalf("%d lost, want %d; %v", len(lost), len(gone), err)
	}
	if lost, err := w.l.Renew(t.Context(), w.now, nil); err != nil || len(lost) > 0 {
		t.Errorf("of none %v are lost, %v", lost, err)
	}
	w.wait(TTL - w.tick)
	w.exactly(100, p)
}
