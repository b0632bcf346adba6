package limits_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// TestElsewhereCountsAsIfUsedHere lives through random histories beside a store that has counted by itself what the other one
// hears of as used elsewhere: every number of every answer must be the same.
func TestElsewhereCountsAsIfUsedHere(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		elsewhere := &limits.Elsewhere{}
		told, own := limits.NewMemory(limits.MemoryConfig{Elsewhere: elsewhere}), limits.NewMemory(limits.MemoryConfig{})
		now := start
		used := map[limits.Total]int64{}
		for i := range 400 {
			now = now.Add(time.Duration(r.IntN(200)) * time.Minute)
			if r.IntN(10) == 0 { // before anything is asked in this period, so that the oracle can be raised to it
				now = now.Truncate(24 * time.Hour).Add(24 * time.Hour)
				for _, id := range limitIDs {
					for k := limits.RequestsPerDay; k <= limits.TokensPerDay; k++ {
						total := limits.Total{ID: id, Kind: k, Start: k.Began(now)}
						used[total] = r.Int64N(60)
						total.Used = used[total]
						elsewhere.Take("hub", now, []limits.Total{total})
						if err := own.Raise(t.Context(), now, []limits.Total{total}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			ask := limits.Ask{Admission: fmt.Sprint(i), Limits: dayLimits(r), Tokens: r.Int64N(30)}
			a, err := told.Acquire(t.Context(), now, ask)
			b, worse := own.Acquire(t.Context(), now, ask)
			if err != nil || worse != nil {
				t.Fatal(err, worse)
			}
			if d := cmp.Diff(b, a, cmpopts.IgnoreUnexported(limits.Hold{})); d != "" {
				t.Fatalf("seed %d, %d: used here (-) and elsewhere (+) differ: %s", seed, i, d)
			}
		}
	}
}

func dayLimits(r *rand.Rand) (ls []policy.Limit) {
	for _, id := range limitIDs {
		if r.IntN(2) == 0 {
			ls = append(ls, policy.Limit{ID: id, RequestsPerDay: r.Int64N(80), TokensPerDay: r.Int64N(120)})
		}
	}
	return ls
}

// TestHubThatStartsKnowsLess: what another start of it has said stands as the least, for the period.
func TestHubThatStartsKnowsLess(t *testing.T) {
	elsewhere := &limits.Elsewhere{}
	m := limits.NewMemory(limits.MemoryConfig{Elsewhere: elsewhere})
	l := policy.Limit{ID: "t", RequestsPerDay: 100}
	used := func(now time.Time) int64 {
		t.Helper()
		all, err := m.Look(t.Context(), now, []policy.Limit{l})
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Used
	}
	take := func(hub string, now time.Time, n int64) {
		elsewhere.Take(hub, now, []limits.Total{{ID: "t", Kind: limits.RequestsPerDay, Start: limits.RequestsPerDay.Began(now), Used: n}})
	}
	for _, c := range []struct {
		hub     string
		n, want int64
	}{{"one", 40, 40}, {"one", 30, 30}, {"two", 10, 30}, {"two", 35, 35}, {"two", 20, 30}, {"three", 0, 30}} {
		take(c.hub, start, c.n)
		if got := used(start); got != c.want {
			t.Errorf("after %s said %d: %d, want %d", c.hub, c.n, got, c.want)
		}
	}
	tomorrow := start.Add(24 * time.Hour)
	if got := used(tomorrow); got != 0 {
		t.Errorf("the next day %d", got)
	}
	take("three", tomorrow, 5)
	take("three", start, 90) // of yesterday
	if got := used(tomorrow); got != 5 {
		t.Errorf("the next day %d, want 5", got)
	}
}

// TestCounted is what a store has counted itself, and nothing of what it has heard.
func TestCounted(t *testing.T) {
	elsewhere := &limits.Elsewhere{}
	m := limits.NewMemory(limits.MemoryConfig{Elsewhere: elsewhere})
	l := policy.Limit{ID: "t", TokensPerDay: 100}
	elsewhere.Take("hub", start, []limits.Total{{ID: "t", Kind: limits.TokensPerDay, Start: limits.TokensPerDay.Began(start), Used: 60}})
	d, err := m.Acquire(t.Context(), start, limits.Ask{Admission: "a", Limits: []policy.Limit{l}, Tokens: 40})
	if err != nil || !d.Admitted || d.Tokens.Used != 100 || d.Tokens.Remaining != 0 {
		t.Fatalf("%+v %v", d, err)
	}
	hold := d.Hold
	if d, err = m.Acquire(t.Context(), start, limits.Ask{Admission: "b", Limits: []policy.Limit{l}, Tokens: 1}); err != nil || d.Admitted {
		t.Errorf("one too many passes: %+v %v", d, err)
	}
	for _, total := range m.Counted(start) {
		if total.Kind == limits.TokensPerDay && total.Used != 40 {
			t.Errorf("%+v", total)
		}
	}
	if n := len(m.Counted(start)); n != 4 {
		t.Errorf("%d totals, want 4: each kind of day and month", n)
	}
	if err := m.Release(t.Context(), start, hold, limits.Used{}); err != nil { // of no tokens
		t.Fatal(err)
	}
	for _, total := range m.Counted(start) {
		if want := map[limits.Kind]int64{limits.RequestsPerDay: 1, limits.RequestsPerMonth: 1}[total.Kind]; total.Used != want {
			t.Errorf("after all tokens were given back: %+v", total)
		}
	}
	if n := len(m.Counted(start)); n != 4 {
		t.Errorf("%d totals, want 4: who was told of more must hear of it", n)
	}
	if ts := m.Counted(start.AddDate(0, 1, 0)); len(ts) != 0 {
		t.Errorf("of a month that is over: %v", ts)
	}
}
