package limits

import (
	"math"
	"testing"
	"time"

	"github.com/spokegate/spokegate/policy"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestZeroDecisionIsNo(t *testing.T) {
	var d Decision
	if d.Admitted || d.String() != "refused: not judged" {
		t.Errorf("%v", d)
	}
}

func TestDecideChangesNothing(t *testing.T) {
	l := policy.Limit{ID: "a", RequestsPerSecond: 2, Burst: 3, Concurrency: 4}
	facts := []Fact{{Limit: l, Bucket: Bucket{Full: noon.Add(time.Second), Interval: time.Second / 2, Burst: 3}, InFlight: 1}}
	before := facts[0]
	first, second := Decide(noon, facts, 0), Decide(noon, facts, 0)
	if facts[0] != before || first.String() != second.String() {
		t.Errorf("%+v became %+v; %s, then %s", before, facts[0], first, second)
	}
	if got, want := first.String(), "admitted: least left is platform, rate: 0 of 3 left, full in 1.5s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Odd numbers must neither admit without bound nor refuse for ever, nor overflow.
func TestBucketExtremes(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit policy.Limit
		fits  int64
		wait  time.Duration
	}{
		{"burst missing", policy.Limit{RequestsPerSecond: 1}, 1, time.Second},
		{"burst negative", policy.Limit{RequestsPerSecond: 1, Burst: -5}, 1, time.Second},
		{"faster than nanoseconds", policy.Limit{RequestsPerSecond: 1e12, Burst: 3}, 3, 1},
		{"infinite", policy.Limit{RequestsPerSecond: math.Inf(1), Burst: 3}, 3, 1},
		{"a third", policy.Limit{RequestsPerSecond: 3, Burst: 2}, 2, 333333333},
		{"one a day", policy.Limit{RequestsPerSecond: 1.0 / 86400, Burst: 1}, 1, 24 * time.Hour},
		{"slower than time", policy.Limit{RequestsPerSecond: 1e-300, Burst: 5}, 1, maxSpan},
		{"slow with a huge burst", policy.Limit{RequestsPerSecond: 1e-4, Burst: 1 << 40}, int64(maxSpan / 1e13), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b Bucket
			b = b.Fit(noon, c.limit)
			if got := b.Left(noon); got != c.fits {
				t.Errorf("fresh: %d fit, want %d", got, c.fits)
			}
			for range min(c.fits, 10) {
				b = b.Fit(noon, c.limit).Take(noon)
			}
			if got := b.Wait(noon); got != c.wait {
				t.Errorf("wait %v, want %v", got, c.wait)
			}
			if b.Left(noon) < 0 || b.Debt(noon) < 0 {
				t.Errorf("negative: left %d, debt %v", b.Left(noon), b.Debt(noon))
			}
			if b.Wait(noon.Add(c.wait)) != 0 {
				t.Errorf("still to wait after the wait")
			}
		})
	}
}

func TestFitKeepsWhatWasUsed(t *testing.T) {
	l := func(rate float64, burst int) policy.Limit {
		return policy.Limit{RequestsPerSecond: rate, Burst: burst}
	}
	for _, c := range []struct {
		name     string
		from, to policy.Limit
		taken    int
		left     int64
	}{
		{"same", l(10, 10), l(10, 10), 4, 6},
		{"faster", l(1, 10), l(1000, 10), 4, 6},
		{"slower", l(1000, 10), l(1, 10), 4, 6},
		{"burst raised", l(1, 5), l(1, 50), 5, 45},
		{"burst lowered", l(1, 50), l(1, 5), 3, 2},
		{"burst lowered below what was used", l(1, 50), l(7, 5), 30, 0},
	} {
		b := Bucket{}.Fit(noon, c.from)
		for range c.taken {
			b = b.Take(noon)
		}
		b = b.Fit(noon, c.to)
		if got := b.Left(noon); got != c.left {
			t.Errorf("%s: %d left, want %d", c.name, got, c.left)
		}
		if b != b.Fit(noon.Add(time.Hour), c.to) {
			t.Errorf("%s: fitting twice changes the bucket", c.name)
		}
		if wait := b.Wait(noon); wait > b.Interval {
			t.Errorf("%s: %v to wait", c.name, wait)
		}
	}
}

func TestOneAdmissionAllocates(t *testing.T) {
	facts := []Fact{{Limit: policy.Limit{ID: "a", RequestsPerSecond: 2, Burst: 3, Concurrency: 4}}}
	if n := testing.AllocsPerRun(100, func() { Decide(noon, facts, 0) }); n > 1 {
		t.Errorf("%v allocations a decision, want the standing alone", n)
	}
}

// No one needs the milliseconds of hours; and whoever comes back after the time shown is not too early.
func TestWaitsAreShownAsPeopleSayThem(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		1500*time.Microsecond + 1:               "2ms",
		time.Minute - 1001*time.Microsecond:     "59.999s",
		time.Minute:                             "1m0s",
		time.Minute + 1:                         "1m1s",
		6*time.Hour + 38*time.Minute + 1036*1e6: "6h38m2s",
		24*time.Hour - 1:                        "24h0m0s",
		24*time.Hour + 1:                        "1d0h1m",
		30*24*time.Hour + 11*time.Hour + 59*1e9: "30d11h1m",
	} {
		s := Standing{Kind: Rate, Max: 5, Refuses: true, RetryAfter: wait}
		if got := s.String(); got != "platform, rate: 0 of 5 left, come back in "+want {
			t.Errorf("%d ns: %s, want %s", wait, got, want)
		}
	}
}
