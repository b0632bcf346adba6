package limits_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

// month is a limit of a month's quotas: the month does not turn while a test runs, but for one in a million.
func month(id string, requests, tokens int64) policy.Limit {
	return policy.Limit{Level: policy.TeamLevel, Owner: id, ID: id, RequestsPerMonth: requests, TokensPerMonth: tokens}
}

// spend asks at a moment for tokens, and fails the test if the answer is another.
func (d *door) spend(t *testing.T, now time.Time, name string, tokens int64, admitted bool, l policy.Limit) limits.Decision {
	t.Helper()
	got, err := d.Acquire(t.Context(), now, limits.Ask{Admission: name, Limits: []policy.Limit{l}, Tokens: tokens})
	if err != nil || got.Admitted != admitted {
		t.Fatalf("%s: %s, %v", name, got, err)
	}
	return got
}

func (d *door) end(t *testing.T, now time.Time, h limits.Hold, used int64) {
	t.Helper()
	if err := d.Release(t.Context(), now, h, limits.Used{Tokens: used}); err != nil {
		t.Fatal(err)
	}
}

// usedOf is what a store has counted of a month's requests and tokens.
func usedOf(t *testing.T, store limits.Limiter, l policy.Limit) string {
	t.Helper()
	all, err := store.Look(t.Context(), time.Now(), []policy.Limit{l})
	if err != nil {
		return err.Error()
	}
	var used []string
	for _, s := range all {
		used = append(used, fmt.Sprint(s.Used))
	}
	return strings.Join(used, " ")
}

func TestFallbackSharesQuotas(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	server.Kill()
	now := time.Now()
	for _, d := range []*door{a, b} {
		admitted := map[string]int{}
		for i := range 20 {
			for _, l := range []policy.Limit{
				{ID: "day", RequestsPerDay: 9}, {ID: "one", RequestsPerMonth: 1},
				{ID: "minute", TokensPerMinute: 1000}, {ID: "tokens", TokensPerDay: 1100, TokensPerMonth: 1e6},
			} {
				got, err := d.Acquire(t.Context(), now, limits.Ask{Admission: fmt.Sprint(d == a, l.ID, i), Limits: []policy.Limit{l}, Tokens: 100})
				if err != nil {
					t.Fatal(err)
				}
				if got.Admitted {
					admitted[l.ID]++
				}
			}
		}
		if got := fmt.Sprint(admitted); got != "map[day:4 minute:5 one:1 tokens:5]" {
			t.Errorf("admitted %s, want half of each, and at least one", got)
		}
		big := policy.Limit{ID: "big", TokensPerMinute: 1000}
		d.spend(t, now, fmt.Sprint(d == a, "within the limit, above the share"), 700, true, big)
		if s := d.spend(t, now, fmt.Sprint(d == a, "a second one"), 700, false, big).Tokens; s.RetryAfter <= 0 {
			t.Errorf("come back in %s", s.RetryAfter)
		}
		if s := d.spend(t, now, fmt.Sprint(d == a, "above the limit"), 1001, false, big).Tokens; s.RetryAfter != limits.Never {
			t.Errorf("come back in %s", s.RetryAfter)
		}
		if all, err := d.Look(t.Context(), now, []policy.Limit{{ID: "day", RequestsPerDay: 9}}); err != nil || len(all) != 1 || all[0].Used != 4 || all[0].Max != 4 {
			t.Errorf("looked: %v, %v", all, err)
		}
	}
}

// counts waits until a door counts so many requests and tokens of a month by itself.
func (d *door) counts(t *testing.T, l policy.Limit, want string) {
	t.Helper()
	eventually(t, "the door counts "+want, func() bool { return usedOf(t, d.Local(), l) == want })
}

// What each door spends alone is no more than its part of what all together had left, as known at the last beat, whoever used
// the rest.
func TestFallbackSharesWhatIsLeft(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	l, now := month("team", 100, 1e9), time.Now()
	for i := range 80 {
		a.spend(t, now, fmt.Sprint("a", i), 10, true, l)
	}
	b.spend(t, now, "b", 10, true, l)
	for _, d := range []*door{a, b} {
		d.counts(t, l, "41 405")
	}
	server.Kill()
	for _, d := range []*door{a, b} {
		for i := range 9 {
			d.spend(t, now, fmt.Sprint(d == a, "some left", i), 10, true, l)
		}
		d.spend(t, now, fmt.Sprint(d == a, "no more"), 10, false, l)
	}
}

// What others have used of a quota a door knows too that has admitted nothing of it: it was refused.
func TestFallbackKnowsWhatOthersUsed(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	l, now := month("team", 10, 0), time.Now()
	for i := range 10 {
		a.spend(t, now, fmt.Sprint("a", i), 1, true, l)
	}
	b.spend(t, now, "refused", 1, false, l)
	for _, d := range []*door{a, b} {
		d.counts(t, l, "5")
	}
	server.Kill()
	for _, d := range []*door{a, b} {
		d.spend(t, now, fmt.Sprint(d == a, "no more"), 1, false, l)
	}
}

// What was reserved and not used is nobody's any more when Redis goes away.
func TestFallbackForgetsReservations(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	l, now := month("team", 1000, 100_000), time.Now()
	first, second := a.spend(t, now, "a", 45_000, true, l), b.spend(t, now, "b", 45_000, true, l)
	for _, d := range []*door{a, b} {
		d.counts(t, l, "1 45000")
	}
	a.end(t, now, first.Hold, 100)
	b.end(t, now, second.Hold, 100)
	for _, d := range []*door{a, b} {
		d.counts(t, l, "1 100")
	}
	server.Kill()
	for _, d := range []*door{a, b} {
		d.spend(t, now, fmt.Sprint(d == a, "fits"), 49_900, true, l)
		d.spend(t, now, fmt.Sprint(d == a, "does not"), 1, false, l)
	}
}

func TestFallbackSettlesWhereItCounted(t *testing.T) {
	t.Parallel()
	server := limitstest.StartRedis(t)
	a, _ := pairWith(t, server.URL(), timeout)
	l, now := month("team", 1000, 100_000), time.Now()
	before, after := a.spend(t, now, "before", 5000, true, l), a.spend(t, now, "after", 5000, true, l)
	server.Freeze()
	alone := a.spend(t, now, "alone", 5000, true, l)
	if !a.Away() {
		t.Fatal(a.Status())
	}
	a.end(t, now, before.Hold, 100)
	server.Thaw()
	a.returns(t)
	a.end(t, now, after.Hold, 20)
	a.end(t, now, alone.Hold, 3)
	a.end(t, now, alone.Hold, 4000)
	flush(t, a.redis)
	if got := usedOf(t, a.redis, l); got != "2 120" {
		t.Errorf("Redis counts %s", got)
	}
	a.counts(t, l, "2 63") // half of those, and what it admitted by itself
}

// A Redis that was restarted empty gets the month's counts back, once, whichever doors bring them; and what was open then
// is settled as if nothing had happened.
func TestFallbackRebuilds(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	l, now := month("team", 1000, 100_000), time.Now()
	open := a.spend(t, now, "open", 1000, true, l)
	for i := range 4 {
		a.spend(t, now, fmt.Sprint("a", i), 100, true, l)
		b.spend(t, now, fmt.Sprint("b", i), 100, true, l)
	}
	for _, d := range []*door{a, b} {
		eventually(t, "the door knows the totals", func() bool { return d.Known("team") == "9 1800" })
	}
	server.Restart()
	for _, d := range []*door{a, b} {
		eventually(t, "the door has put them back", func() bool { return d.gauge(t, "spokegate_limits_rebuilds_total") == 1 })
		if !strings.Contains(d.log.String(), "lost its memory") {
			t.Errorf("no word of it:\n%s", d.log)
		}
		d.returns(t)
	}
	if got := usedOf(t, a.redis, l); got != "9 1800" {
		t.Errorf("Redis counts %s", got)
	}
	eventually(t, "what runs is known again", func() bool {
		return renewed(t, a, now, open.Hold) && !a.Away()
	})
	a.end(t, now, open.Hold, 10)
	flush(t, a.redis)
	if got := usedOf(t, a.redis, l); got != "9 810" {
		t.Errorf("Redis counts %s after the end", got)
	}
}

// Totals that are told while Redis is away reach it when it is back, also where its memory is the same.
func TestFallbackBringsTotalsLater(t *testing.T) {
	t.Parallel()
	server := limitstest.StartRedis(t)
	a, _ := pairWith(t, server.URL(), timeout)
	l, now := month("team", 100, 1e6), time.Now()
	first := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	a.spend(t, now, "one", 10, true, l)
	a.counts(t, l, "1 5")
	server.Freeze()
	eventually(t, "the door notices", func() bool {
		_, _ = a.Look(t.Context(), now, []policy.Limit{l})
		return a.Away()
	})
	err := a.Raise(t.Context(), now, []limits.Total{{ID: "team", Kind: limits.RequestsPerMonth, Start: first, Used: 90}})
	if err != nil {
		t.Fatal(err)
	}
	if got := usedOf(t, a.Local(), l); got != "45 5" {
		t.Errorf("the door counts %s, want half of the ninety", got)
	}
	server.Thaw()
	a.returns(t)
	if got := usedOf(t, a.redis, l); got != "90 10" {
		t.Errorf("Redis counts %s", got)
	}
	if err := a.Raise(t.Context(), now, []limits.Total{{ID: "team", Kind: limits.TokensPerMonth, Start: first, Used: 5000}}); err != nil {
		t.Fatal(err)
	}
	if got := usedOf(t, a.redis, l); got != "90 5000" {
		t.Errorf("Redis counts %s", got)
	}
}

// 200 requests arrive at two doors at once, for a quota of ten.
func TestDoorsShareAQuota(t *testing.T) {
	server := limitstest.StartRedis(t)
	a, b := pair(t, server.URL())
	for name, l := range map[string]policy.Limit{"requests": month("requests", 10, 1e9), "tokens": month("tokens", 1e6, 10_500)} {
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				d := []*door{a, b}[i%2]
				got, err := d.redis.Acquire(t.Context(), time.Now(), limits.Ask{Admission: fmt.Sprint(name, i), Limits: []policy.Limit{l}, Tokens: 1000})
				if err != nil {
					t.Error(err)
				}
				if got.Admitted {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		if n := admitted.Load(); n != 10 {
			t.Errorf("%s: %d admitted", name, n)
		}
		if got := usedOf(t, b.redis, l); got != "10 10000" {
			t.Errorf("%s: Redis counts %s", name, got)
		}
	}
}
