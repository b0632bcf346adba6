package limitstest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// edges are the last moments of periods, and when the next one begins.
func edges(t *testing.T, w *world) {
	for i, e := range []struct {
		last, next string
		turns      []limits.Kind // the others go on
	}{
		{"2026-03-01 12:00:59", "2026-03-01 12:01:00", []limits.Kind{limits.TokensPerMinute}},
		{"2026-03-01 23:59:59", "2026-03-02 00:00:00", []limits.Kind{limits.TokensPerMinute, limits.RequestsPerDay, limits.TokensPerDay}},
		{"2026-04-30 23:59:59", "2026-05-01 00:00:00", every},
		{"2026-12-31 23:59:59", "2027-01-01 00:00:00", every},
		{"2027-02-28 23:59:59", "2027-03-01 00:00:00", every},
		{"2028-02-28 23:59:59", "2028-02-29 00:00:00", []limits.Kind{limits.TokensPerMinute, limits.RequestsPerDay, limits.TokensPerDay}},
		{"2028-02-29 23:59:59", "2028-03-01 00:00:00", every},
		{"2100-02-28 23:59:59", "2100-03-01 00:00:00", every}, // no leap year
	} {
		all := map[limits.Kind]policy.Limit{}
		for _, k := range every {
			all[k] = only(k, fmt.Sprint(i, k))
		}
		w.to(e.last)
		for k, l := range all {
			w.reserve(100, l)
			d := w.tokens(100, l)
			if d.Admitted || d.Binding().Kind != k || slices.Contains(e.turns, k) && d.Binding().RetryAfter != time.Second {
				t.Errorf("%s at %s: %s", k, e.last, d)
			}
		}
		w.wait(time.Second - w.tick)
		for k, l := range all {
			if d := w.tokens(100, l); d.Admitted {
				t.Errorf("%s a moment before %s: %s", k, e.next, d)
			}
		}
		w.to(e.next)
		for k, l := range all {
			if d := w.tokens(100, l); d.Admitted != slices.Contains(e.turns, k) {
				t.Errorf("%s at %s: %s", k, e.next, d)
			}
		}
	}
}

var every = []limits.Kind{limits.TokensPerMinute, limits.RequestsPerDay, limits.TokensPerDay, limits.RequestsPerMonth, limits.TokensPerMonth}

// only is a limit with one quota, for one request of 100 tokens.
func only(k limits.Kind, id string) policy.Limit {
	return quota(id, func(l *policy.Limit) {
		switch k {
		case limits.TokensPerMinute:
			l.TokensPerMinute = 100
		case limits.RequestsPerDay:
			l.RequestsPerDay = 1
		case limits.TokensPerDay:
			l.TokensPerDay = 100
		case limits.RequestsPerMonth:
			l.RequestsPerMonth = 1
		case limits.TokensPerMonth:
			l.TokensPerMonth = 100
		}
	})
}

func monthWait(t *testing.T, w *world) {
	l := only(limits.RequestsPerMonth, "team")
	w.to("2028-02-10 06:00:00")
	w.admit(l)
	w.full(0, limits.RequestsPerMonth, 19*24*time.Hour+18*time.Hour, l) // February has 29 days
	equal(t, "reset", w.look(l)[0].Reset, 19*24*time.Hour+18*time.Hour)
	w.wait(19*24*time.Hour + 18*time.Hour)
	w.admit(l)
}

func quotaBinding(t *testing.T, w *world) {
	all := quota("team", func(l *policy.Limit) {
		l.RequestsPerSecond, l.Burst, l.Concurrency = 1, 10, 100
		l.TokensPerMinute, l.TokensPerDay = 1000, 100_000
		l.RequestsPerDay = 3
	})
	key := quota("key", func(l *policy.Limit) { l.TokensPerMinute = 1000 })
	d := w.tokens(100, all, key)
	equal(t, "requests", d.Requests.Kind, limits.RequestsPerDay)
	equal(t, "of the day left", d.Requests.Remaining, 2)
	equal(t, "tokens", d.Tokens.Kind, limits.TokensPerMinute)
	equal(t, "first of equals", d.Tokens.Limit.ID, "team")
	equal(t, "binding", d.Binding().Kind, limits.RequestsPerDay) // two of three left against nine of ten

	d = w.tokens(950, all, key)
	equal(t, "refused", d.Admitted, false)
	equal(t, "binding when refused", d.Binding().Kind, limits.TokensPerMinute)
	equal(t, "the requests do not refuse", d.Requests.Refuses, false)
	equal(t, "nor do they count it", d.Requests.Remaining, 2)

	w.tokens(100, all)
	w.tokens(100, all)
	d = w.tokens(800, all)
	equal(t, "both refuse, the longer wait", d.Binding().Kind, limits.RequestsPerDay)
	equal(t, "tokens refuse too", d.Tokens.Refuses, true)
	equal(t, "rate and places are not taken", fmt.Sprint(w.used(all)), "[3 3 300 3 300]")
}

func quotaChanges(t *testing.T, w *world) {
	l := tokensPerMinute("team", 1000)
	w.reserve(1000, l)
	w.full(1, limits.TokensPerMinute, time.Minute, l)
	raised := tokensPerMinute("team", 1500)
	h := w.reserve(500, raised)
	w.full(1, limits.TokensPerMinute, time.Minute, raised)
	lowered := tokensPerMinute("team", 800)
	w.full(1, limits.TokensPerMinute, time.Minute, lowered)
	equal(t, "used above", w.look(lowered)[0].Used, 1500)
	equal(t, "left", w.look(lowered)[0].Remaining, 0)
	w.settle(h, limits.Used{})
	w.full(1, limits.TokensPerMinute, time.Minute, lowered)

	added := quota("team", func(l *policy.Limit) { l.RequestsPerDay, l.TokensPerDay = 3, 5000 })
	w.wantUsed("a quota of another kind knows what was used", added, 2, 1000)
	w.reserve(10_000, places("team", 5)) // removed: not counted
	w.wantUsed("and what passed without one is not", added, 2, 1000)

	before := w.admit(places("new", 5)) // reserved nothing in a quota
	first := quota("new", func(l *policy.Limit) { l.TokensPerDay, l.RequestsPerDay = 1000, 10 })
	w.reserve(300, first)
	w.settle(before, limits.Used{Tokens: 900, Unserved: true})
	w.wantUsed("settled what it never reserved", first, 1, 300)
}

// The same admission is settled by what it reserved, whichever quotas the limit has by then.
func quotaKindAdded(t *testing.T, w *world) {
	h := w.reserve(600, tokensPerMinute("team", 1000))
	added := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.TokensPerDay = 1000, 9000 })
	w.reserve(100, added)
	w.settle(h, limits.Used{Tokens: 50})
	w.wantUsed("settled in both", added, 150, 150)
}

func quotaClockBack(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.RequestsPerDay = 1000, 2 })
	w.to("2026-03-02 00:00:10")
	h := w.reserve(1000, l)
	w.wait(-15 * time.Second) // yesterday's last minute: no second quota of today
	if d := w.tokens(1, l); d.Admitted {
		t.Errorf("before midnight again: %s", d)
	}
	w.wait(20 * time.Second)
	w.full(1, limits.TokensPerMinute, 45*time.Second, l)
	w.settle(h, limits.Used{Tokens: 100})
	w.wantUsed("settled", l, 100, 1)
}

func quotaClockLeap(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) { l.TokensPerMinute, l.RequestsPerMonth = 1000, 2 })
	h := w.reserve(1000, l)
	w.wait(50 * 365 * 24 * time.Hour)
	w.wantUsed("fifty years later", l, 0, 0)
	w.reserve(1000, l)
	w.settle(h, limits.Used{})
	w.wantUsed("after a release from then", l, 1000, 1)
}

func look(t *testing.T, w *world) {
	team := quota("team", func(l *policy.Limit) {
		l.RequestsPerSecond, l.Burst, l.Concurrency, l.TokensPerMinute, l.RequestsPerMonth = 1, 4, 2, 1000, 9
	})
	key := quota("key", func(l *policy.Limit) { l.TokensPerDay = 500 })
	equal(t, "of none", len(w.look()), 0)
	unused := w.look(team, key)
	equal(t, "standings", len(unused), 5)
	for i, k := range []limits.Kind{limits.Rate, limits.Concurrency, limits.TokensPerMinute, limits.RequestsPerMonth, limits.TokensPerDay} {
		s := unused[i]
		if s.Kind != k || s.Used != 0 || s.Remaining != s.Max || s.Reset != 0 || s.Refuses || s.RetryAfter != 0 {
			t.Errorf("%d: want %s unused, got %+v", i, k, s)
		}
	}
	equal(t, "whose", unused[4].Limit.ID, "key")
	w.reserve(500, team, key)
	for range 20 {
		got := ""
		for _, s := range w.look(team, key) {
			got += fmt.Sprint(s.Kind, " ", s.Used, " of ", s.Max, " reset ", s.Reset, " refuses ", s.Refuses, " ", s.RetryAfter, "\n")
		}
		equal(t, "standings", got, `rate 1 of 4 reset 1s refuses false 0s
concurrency 1 of 2 reset 1s refuses false 0s
tokens_per_minute 500 of 1000 reset 1m0s refuses false 0s
requests_per_month 1 of 9 reset 732h0m0s refuses false 0s
tokens_per_day 500 of 500 reset 12h0m0s refuses true 12h0m0s
`)
	}
	w.exactly(1, team)
}

// rebuild reads what is counted, and puts it into a store that has counted less, as after a restart.
func rebuild(t *testing.T, w *world) {
	l := quota("team", func(l *policy.Limit) {
		l.RequestsPerDay, l.TokensPerDay, l.RequestsPerMonth, l.TokensPerMonth = 100, 10_000, 100, 10_000
	})
	store, ok := w.l.(limits.Rebuilder)
	if !ok {
		t.Fatalf("%T cannot be rebuilt", w.l)
	}
	totals := func(want int) map[string]int64 {
		ts, err := store.Totals(t.Context(), w.now, []string{"nobody", "team", "other"})
		if err != nil || len(ts) != want {
			t.Fatalf("%d totals, want %d: %v, %v", len(ts), want, ts, err)
		}
		got := map[string]int64{}
		for _, total := range ts {
			got[fmt.Sprint(total.ID, " ", total.Kind, " ", total.Start.UTC().Format(time.DateOnly))] = total.Used
		}
		return got
	}
	totals(0)
	w.to("2026-03-02 12:00:00")
	w.reserve(400, l)
	w.to("2026-03-03 12:00:00")
	h := w.reserve(200, l)
	equal(t, "counted", fmt.Sprint(totals(4)), "map[team requests_per_day 2026-03-03:1 team requests_per_month 2026-03-01:2 "+
		"team tokens_per_day 2026-03-03:200 team tokens_per_month 2026-03-01:600]")

	day, month := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	raise := []limits.Total{
		{ID: "team", Kind: limits.RequestsPerDay, Start: day, Used: 7},
		{ID: "team", Kind: limits.TokensPerDay, Start: day.AddDate(0, 0, -1), Used: 5000}, // over
		{ID: "team", Kind: limits.RequestsPerMonth, Start: month, Used: 1},                // less than counted
		{ID: "team", Kind: limits.TokensPerMonth, Start: month, Used: 3000},
		{ID: "team", Kind: limits.TokensPerMinute, Start: w.now, Used: 3000}, // has no total
		{ID: "other", Kind: limits.TokensPerDay, Start: day, Used: 9},
		{ID: "other", Kind: limits.TokensPerDay, Start: day, Used: -9},
	}
	for range 3 {
		if err := store.Raise(t.Context(), w.now, raise); err != nil {
			t.Fatal(err)
		}
	}
	w.wantUsed("raised", l, 7, 200, 2, 3000)
	equal(t, "of others", totals(5)["other tokens_per_day 2026-03-03"], 9)
	w.settle(h, limits.Used{Tokens: 100})
	w.wantUsed("settled after it", l, 7, 100, 2, 2900)
	if err := store.Raise(t.Context(), w.now, nil); err != nil {
		t.Error(err)
	}
	w.to("2026-04-01 00:00:00")
	totals(0)
}
