package limitstest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// quota is a limit of quotas; each test sets those that it is about.
func quota(id string, set func(*policy.Limit)) policy.Limit {
	l := policy.Limit{Level: policy.TeamLevel, Owner: id, ID: id}
	set(&l)
	return l
}

func tokensPerMinute(id string, n int64) policy.Limit {
	return quota(id, func(l *policy.Limit) { l.TokensPerMinute = n })
}

func requestsPerDay(id string, n int64) policy.Limit {
	return quota(id, func(l *policy.Limit) { l.RequestsPerDay = n })
}

// tokens asks for a new admission that reserves so many.
func (w *world) tokens(n int64, ls ...policy.Limit) limits.Decision {
	w.t.Helper()
	w.next++
	return w.asTokens(fmt.Sprintf("ask-%d", w.next), n, ls...)
}

func (w *world) reserve(n int64, ls ...policy.Limit) limits.Hold {
	w.t.Helper()
	d := w.tokens(n, ls...)
	if !d.Admitted {
		w.t.Fatalf("want %d tokens admitted, got %s", n, d)
	}
	return d.Hold
}

// full asks for so many tokens and wants them refused by the limit's kind until it is time to come back.
func (w *world) full(n int64, k limits.Kind, wait time.Duration, ls ...policy.Limit) {
	w.t.Helper()
	d := w.tokens(n, ls...)
	if b := d.Binding(); d.Admitted || b == nil || !b.Refuses || b.Kind != k || b.RetryAfter != wait {
		w.t.Fatalf("want %d tokens refused by %s for %s, got %s", n, k, wait, d)
	}
}

func (w *world) settle(h limits.Hold, used limits.Used) {
	w.t.Helper()
	if err := w.l.Release(w.t.Context(), w.now, h, used); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// used is how much a limit has used of each of its kinds, in the order of Decide.
func (w *world) used(l policy.Limit) (used []int64) {
	w.t.Helper()
	for _, s := range w.look(l) {
		used = append(used, s.Used)
	}
	return used
}

func (w *world) look(ls ...policy.Limit) []limits.Standing {
	w.t.Helper()
	all, err := w.l.Look(w.t.Context(), w.now, ls)
	if err != nil {
		w.t.Fatalf("look: %v", err)
	}
	return all
}

// wantUsed checks what a limit has used of each of its kinds.
func (w *world) wantUsed(what string, l policy.Limit, want ...int64) {
	w.t.Helper()
	if got := w.used(l); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%s: used %v, want %v", what, got, want)
	}
}

// to goes to a moment, e.g. 2026-03-01 12:00:59.5.
func (w *world) to(moment string) {
	w.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", moment)
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = at
}

func reserveAndSettle(t *testing.T, w *world) {
	l := tokensPerMinute("team", 1000)
	w.wait(15 * time.Second)
	d := w.tokens(600, l)
	equal(t, "admitted", d.Admitted, true)
	equal(t, "reserved", d.Hold.Reserved, 600)
	equal(t, "quotas", fmt.Sprint(d.Hold.Quotas), "[team]")
	equal(t, "at", d.Hold.At.Equal(w.now), true)
	equal(t, "requests", d.Requests == nil, true)
	equal(t, "max", d.Tokens.Max, 1000)
	equal(t, "used", d.Tokens.Used, 600)
	equal(t, "left", d.Tokens.Remaining, 400)
	equal(t, "reset", d.Tokens.Reset, 45*time.Second)
	w.full(401, limits.TokensPerMinute, 45*time.Second, l)
	w.settle(d.Hold, limits.Used{Tokens: 100})
	w.wantUsed("settled", l, 100)
	all := w.reserve(900, l)
	w.full(1, limits.TokensPerMinute, 45*time.Second, l)
	w.settle(all, limits.Used{})
	w.wantUsed("nothing was used", l, 100)
	w.admitZero(l)
}

// admitZero asks for no tokens: that needs no room, but none may be lacking.
func (w *world) admitZero(l policy.Limit) {
	w.t.Helper()
	w.settle(w.reserve(0, l), limits.Used{})
}

func settleAbove(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.TokensPerDay = 1000, 5000 })
	h := w.reserve(900, l)
	w.settle(h, limits.Used{Tokens: 1500})
	w.wantUsed("above the quota", l, 1500, 1500)
	w.full(0, limits.TokensPerMinute, time.Minute, l)
	s := w.look(l)[0]
	equal(t, "left", s.Remaining, 0)
	equal(t, "refuses", s.Refuses, true)
	equal(t, "reset", s.Reset, time.Minute)
	w.wait(time.Minute)
	w.wantUsed("in the next minute", l, 0, 1500)
	w.reserve(1000, l)
}

func settleUnknown(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.TokensPerDay = 5, 1000 })
	w.settle(w.reserve(700, l), limits.Used{Tokens: -1})
	w.wantUsed("the reservation stands", l, 1, 700)
	w.settle(w.reserve(300, l), limits.Used{Tokens: -1, Unserved: true})
	w.wantUsed("and is no request that was served", l, 1, 1000)
}

func settleUnserved(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.RequestsPerMonth, l.TokensPerDay = 1, 2, 1000 })
	for range 3 {
		h := w.reserve(400, l)
		w.full(1, limits.RequestsPerDay, 12*time.Hour, l)
		w.settle(h, limits.Used{Unserved: true})
		w.wantUsed("unserved", l, 0, 0, 0)
	}
	w.settle(w.reserve(400, l), limits.Used{Tokens: 50})
	w.wantUsed("served", l, 1, 50, 1)
}

func settleTwice(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.TokensPerDay = 10, 1000 })
	other := w.reserve(300, l)
	h := w.reserve(500, l)
	w.settle(h, limits.Used{Tokens: 100})
	for _, used := range []limits.Used{{}, {Tokens: 900}, {Tokens: 100, Unserved: true}} {
		w.settle(h, used)
	}
	w.settle(limits.Hold{Admission: "never seen", Quotas: []string{"team"}, Reserved: 400, At: w.now}, limits.Used{})
	w.wantUsed("settled once", l, 2, 400)
	w.settle(other, limits.Used{Tokens: 1, Unserved: true})
	w.wantUsed("and the other", l, 1, 101)
}

func settleLate(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.TokensPerDay, l.TokensPerMonth = 1000, 9000, 9000 })
	w.to("2026-03-01 12:00:50")
	more, less := w.reserve(300, l), w.reserve(600, l)
	w.wait(20 * time.Second)
	w.reserve(50, l)
	w.settle(less, limits.Used{Tokens: 10})
	w.wantUsed("a refund into a minute that is over", l, 50, 360, 360)
	w.settle(more, limits.Used{Tokens: 800})
	w.wantUsed("a charge to a minute that is over", l, 50, 860, 860)

	w.to("2026-03-31 23:59:50")
	h := w.reserve(500, l)
	w.wantUsed("at the month's end", l, 500, 500, 1360)
	w.wait(15 * time.Second)
	w.settle(h, limits.Used{Tokens: 5})
	w.wantUsed("all three are over", l, 0, 0, 0)
	w.settle(w.reserve(9, l), limits.Used{Tokens: 7})
	w.wantUsed("the new ones", l, 7, 7, 7)
}

func settleOrphan(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.TokensPerDay = 10, 1000 })
	orphan, kept := w.reserve(300, l), w.reserve(500, l)
	equal(t, "renewable", kept.Renewable(), true)
	for range 5 {
		w.wait(TTL - w.tick)
		if !w.renewed(w.now, kept) {
			t.Fatal("not renewed")
		}
	}
	if w.renewed(w.now, orphan) {
		t.Error("renewed what has expired")
	}
	w.settle(orphan, limits.Used{Unserved: true}) // too late
	w.wantUsed("an orphan's reservation stands", l, 2, 800)
	w.settle(kept, limits.Used{Tokens: 100})
	w.wantUsed("one that was renewed is settled", l, 2, 400)
}

func quotaOnce(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.TokensPerDay = 3, 1000 })
	first := w.asTokens("one", 400, l)
	again := w.asTokens("one", 900, l)
	equal(t, "said again", again.String(), first.String())
	equal(t, "holds again", fmt.Sprint(again.Hold.Quotas, again.Hold.Reserved, again.Hold.At.Equal(first.Hold.At)), "[team] 400 true")
	w.wantUsed("asked twice", l, 1, 400)
	w.settle(again.Hold, limits.Used{Tokens: 100})
	late := w.asTokens("one", 400, l)
	equal(t, "said after the end", late.String(), first.String())
	w.settle(late.Hold, limits.Used{})
	w.wantUsed("asked after the end", l, 1, 100)
}

func alone(t *testing.T, w *world) {
	wide, narrow := tokensPerMinute("wide", 10_000), tokensPerMinute("narrow", 1000)
	key := quota("key", func(l *policy.Limit) { l.RequestsPerDay = 5 })
	for range 3 {
		d := w.tokens(1001, wide, narrow, key)
		equal(t, "admitted", d.Admitted, false)
		equal(t, "limit", d.Tokens.Limit.ID, "narrow")
		equal(t, "wait", d.Tokens.RetryAfter, limits.Never)
		equal(t, "left", d.Tokens.Remaining, 1000)
		equal(t, "requests", d.Requests.Used, 0)
		equal(t, "requests refuse", d.Requests.Refuses, false)
	}
	w.reserve(9500, wide)
	d := w.tokens(1001, wide, narrow) // one refuses for a minute, the other for ever
	equal(t, "never comes first", d.Binding().Limit.ID, "narrow")
	w.wantUsed("wide", wide, 9500)
	w.wantUsed("key", key, 0)
	w.reserve(1000, narrow)
}

func quotaParallel(t *testing.T, w *world) {
	requests, minute := requestsPerDay("requests", 10), tokensPerMinute("tokens", 1050)
	wide := quota("wide", func(l *policy.Limit) { l.RequestsPerMonth, l.TokensPerMonth = 1e6, 1e9 })
	for name, l := range map[string]policy.Limit{"requests": requests, "tokens": minute} {
		var admitted atomic.Int64
		together(200, func(i int) {
			d, err := w.l.Acquire(t.Context(), w.now, limits.Ask{Admission: fmt.Sprint(name, i), Limits: []policy.Limit{wide, l}, Tokens: 100})
			if err != nil {
				t.Error(err)
			}
			if d.Admitted {
				admitted.Add(1)
			}
		})
		equal(t, name, admitted.Load(), 10)
	}
	w.wantUsed("refused ones counted nowhere", wide, 20, 2000)
	w.wantUsed("tokens", minute, 1000)
}

// quotaLives runs whole lives at once. What each used is known, so what is counted at the end is.
func quotaLives(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.RequestsPerDay, l.TokensPerDay = 5000, 1e6, 1e9 })
	var served, used atomic.Int64
	together(16, func(g int) {
		for i := range 100 {
			d, err := w.l.Acquire(t.Context(), w.now, limits.Ask{Admission: fmt.Sprint(g, "/", i), Limits: []policy.Limit{l}, Tokens: 500})
			if err != nil {
				t.Error(err)
			}
			if !d.Admitted {
				continue
			}
			end := limits.Used{Tokens: int64(i % 7)}
			if end.Unserved = i%3 == 0; !end.Unserved {
				served.Add(1)
			}
			used.Add(end.Tokens)
			together(2, func(int) {
				if err := w.l.Release(t.Context(), w.now, d.Hold, end); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
	})
	w.wantUsed("at the end", l, used.Load(), served.Load(), used.Load())
}
