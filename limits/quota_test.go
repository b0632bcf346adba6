package limits

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// The bounds of a period against the calendar of package time, a day at a time.
func TestBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		at := time.Unix(r.Int64N(400*365*86400)-100*365*86400, r.Int64N(1e9)).In(time.FixedZone("east", 9*3600))
		u := at.UTC()
		day := time.Date(u.Year(), u.Month(), u.Day(), 0, 0, 0, 0, time.UTC)
		first, next := day, day.Add(24*time.Hour)
		for first.Day() != 1 {
			first = first.Add(-24 * time.Hour)
		}
		for next.Day() != 1 {
			next = next.Add(24 * time.Hour)
		}
		for s, want := range map[Span][2]time.Time{
			Minute: {u.Truncate(time.Minute), u.Truncate(time.Minute).Add(time.Minute)},
			Day:    {day, day.Add(24 * time.Hour)},
			Month:  {first, next},
		} {
			start, end := s.Bounds(at)
			if start != want[0].Unix() || end != want[1].Unix() {
				t.Fatalf("%d at %s: %d to %d, want %v", s, u, start, end, want)
			}
		}
	}
}

func TestPeriodFit(t *testing.T) {
	start, end := Day.Bounds(noon)
	for name, c := range map[string]struct{ stored, want Period }{
		"nothing stored":              {Period{}, Period{Start: start}},
		"the current one":             {Period{start, 3, 4}, Period{start, 3, 4}},
		"one that is over":            {Period{start - 86400, 3, 4}, Period{Start: start}},
		"the next: clock set back":    {Period{end, 3, 4}, Period{end, 3, 4}},
		"a far one: clock was astray": {Period{end + 86400, 3, 4}, Period{Start: start}},
	} {
		if got := c.stored.Fit(start, end); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// After the clock was set back over an edge, the wait is for the end of the period in which it counts.
func TestQuotaAfterSetBack(t *testing.T) {
	next, _ := Day.Bounds(noon.Add(24 * time.Hour))
	f := Fact{Limit: policy.Limit{ID: "a", RequestsPerDay: 2}}
	f.Periods[Day] = Period{Start: next, Requests: 2}
	if d := Decide(noon, []Fact{f}, 0); d.Admitted || d.Requests.RetryAfter != 36*time.Hour {
		t.Errorf("%s", d)
	}
	f.Periods[Day].Requests = 1
	if d := Decide(noon, []Fact{f}, 0); !d.Admitted || d.Requests.Reset != 36*time.Hour {
		t.Errorf("%s", d)
	}
}

func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		before   Period
		start    int64
		reserved int64
		used     Used
		want     Period
	}{
		"refund":              {Period{60, 2, 900}, 60, 500, Used{Tokens: 20}, Period{60, 2, 420}},
		"charge":              {Period{60, 2, 900}, 60, 500, Used{Tokens: 700}, Period{60, 2, 1100}},
		"unserved":            {Period{60, 2, 900}, 60, 500, Used{Unserved: true}, Period{60, 1, 400}},
		"unknown":             {Period{60, 2, 900}, 60, 500, Used{Tokens: -1}, Period{60, 2, 900}},
		"unknown, unserved":   {Period{60, 2, 900}, 60, 500, Used{Tokens: -7, Unserved: true}, Period{60, 1, 900}},
		"over":                {Period{120, 2, 900}, 60, 500, Used{Unserved: true}, Period{120, 2, 900}},
		"not below nothing":   {Period{60, 0, 100}, 60, 500, Used{Unserved: true}, Period{60, 0, 0}},
		"not above the most":  {Period{60, 1, 100}, 60, 50, Used{Tokens: math.MaxInt64}, Period{60, 1, maxCount}},
		"reserved makes none": {Period{60, 1, 100}, 60, math.MinInt64, Used{Tokens: 5}, Period{60, 1, 105}},
	} {
		if got := c.before.Settle(c.start, c.reserved, c.used); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Whatever the numbers: no overflow, nothing negative, and admitted is what fits.
func TestQuotaExtremes(t *testing.T) {
	odd := []int64{0, 1, 2, maxCount - 1, maxCount, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64, -1}
	start, _ := Minute.Bounds(noon)
	for _, quota := range odd {
		for _, used := range odd[:5] {
			for _, tokens := range odd {
				f := Fact{Limit: policy.Limit{ID: "a", TokensPerMinute: quota}}
				f.Periods[Minute] = Period{Start: start, Tokens: used}
				d := Decide(noon, []Fact{f}, tokens)
				takes := max(0, tokens)
				fits := quota <= 0 || takes <= quota && used <= quota-takes
				s := d.Tokens
				if d.Admitted != fits || (s == nil) != (quota <= 0) {
					t.Fatalf("%d tokens, %d of %d used: %s", tokens, used, quota, d)
				}
				if s != nil && (s.Used < 0 || s.Remaining < 0 || s.Remaining > s.Max || s.Reset < 0 || s.Refuses == fits) {
					t.Fatalf("%d tokens, %d of %d used: %+v", tokens, used, quota, s)
				}
				if s != nil && (s.RetryAfter == Never) != (takes > quota) {
					t.Fatalf("%d tokens, %d of %d used: come back in %s", tokens, used, quota, s.RetryAfter)
				}
				if p := f.Periods[Minute].Take(tokens); p.Tokens < 0 || p.Tokens > maxCount || p.Requests != 1 {
					t.Fatalf("%d tokens taken from %d: %+v", tokens, used, p)
				}
			}
		}
	}
}

// Of both standings the stricter binds, by the order in which limits combine.
func TestBinding(t *testing.T) {
	s := func(refuses bool, wait time.Duration, left, of int64) *Standing {
		return &Standing{Refuses: refuses, RetryAfter: wait, Remaining: left, Max: of}
	}
	for name, c := range map[string]struct {
		requests, tokens *Standing
		tokensBind       bool
	}{
		"one refuses":           {s(false, 0, 0, 9), s(true, 1, 8, 9), true},
		"the longer wait":       {s(true, 2, 0, 9), s(true, 3, 8, 9), true},
		"never":                 {s(true, time.Hour, 0, 9), s(true, Never, 9, 9), true},
		"the smaller share":     {s(false, 0, 5, 10), s(false, 0, 49, 100), true},
		"equals keep the order": {s(false, 0, 5, 10), s(false, 0, 50, 100), false},
		"equal waits":           {s(true, 2, 1, 10), s(true, 2, 0, 100), false},
		"no tokens":             {s(false, 0, 5, 10), nil, false},
		"no requests":           {nil, s(false, 0, 5, 10), true},
	} {
		want := c.requests
		if c.tokensBind {
			want = c.tokens
		}
		if got := (Decision{Requests: c.requests, Tokens: c.tokens}).Binding(); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAllKindsAllocateOnce(t *testing.T) {
	l := policy.Limit{ID: "a", RequestsPerSecond: 2, Burst: 3, Concurrency: 4, TokensPerMinute: 5, RequestsPerDay: 6, TokensPerDay: 7,
		RequestsPerMonth: 8, TokensPerMonth: 9}
	facts := []Fact{{Limit: l}, {Limit: l}, {Limit: l}, {Limit: l}}
	if n := testing.AllocsPerRun(100, func() { Decide(noon, facts, 3) }); n > 1 {
		t.Errorf("%v allocations a decision, want the two standings in one", n)
	}
}
