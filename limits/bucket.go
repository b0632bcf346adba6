package limits

import (
	"math"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Bucket is the state of one rate limit: GCRA, kept as the time at which the bucket would be full again, and the limit
// that this time was reckoned under. The zero value is a full bucket of no limit; Fit gives it one.
type Bucket struct {
	// Full is the theoretical arrival time: each request that passes moves it by Interval, starting from now at the earliest.
	Full time.Time
	// Interval between two requests of the sustained rate, whole nanoseconds.
	Interval time.Duration
	// Burst is how many may pass at once from a full bucket; at least 1.
	Burst int
}

// maxSpan caps what a bucket can owe (about 52 days; a policy allows 31), so that a burst of a very slow rate cannot overflow,
// and so that a store that reckons in doubles is exact.
const maxSpan = time.Duration(1 << 52)

// intervalOf a rate in requests a second, to the nearest nanosecond, so rates above 1e9 count as 1e9.
func intervalOf(rate float64) time.Duration {
	ns := math.Round(float64(time.Second) / rate)
	switch {
	case !(ns >= 1): // also not a number
		return 1
	case ns > float64(maxSpan):
		return maxSpan
	}
	return time.Duration(ns)
}

// Fit returns the bucket under this limit. If the limit has changed since the bucket was written, what was used of the old
// one, counted in requests, counts as used of the new one, up to its burst: so a raise helps at once, and a cut never
// shuts anyone out for longer than one interval.
func (b Bucket) Fit(now time.Time, l policy.Limit) Bucket {
	interval, burst := intervalOf(l.RequestsPerSecond), max(1, l.Burst)
	if b.Interval == interval && b.Burst == burst {
		return b
	}
	debt := b.Debt(now)
	if b.Interval > 0 && b.Interval != interval {
		debt = scale(debt, interval, b.Interval)
	}
	b = Bucket{Interval: interval, Burst: burst}
	b.Full = now.Add(min(debt, b.span()))
	return b
}

// scale gives d × num ÷ den, capped.
func scale(d, num, den time.Duration) time.Duration {
	f := math.Ceil(float64(d) / float64(den) * float64(num))
	if f >= float64(maxSpan) {
		return maxSpan
	}
	return time.Duration(f)
}

// span is the debt of an empty bucket.
func (b Bucket) span() time.Duration {
	if b.Interval > 0 && time.Duration(b.Burst) > maxSpan/b.Interval {
		return maxSpan
	}
	return time.Duration(b.Burst) * b.Interval
}

// Debt is the time until the bucket is full.
func (b Bucket) Debt(now time.Time) time.Duration {
	return max(0, b.Full.Sub(now))
}

// Wait is the time until one more request fits; 0 when it does now.
func (b Bucket) Wait(now time.Time) time.Duration {
	return max(0, b.Debt(now)+b.Interval-b.span())
}

// Left is how many requests fit right now.
func (b Bucket) Left(now time.Time) int64 {
	if b.Interval <= 0 {
		return 0
	}
	return int64(max(0, b.span()-b.Debt(now)) / b.Interval)
}

// Take returns the bucket with one request gone from it. Call it only when Wait is 0.
func (b Bucket) Take(now time.Time) Bucket {
	b.Full = now.Add(b.Debt(now) + b.Interval)
	return b
}

// capped returns the bucket owing no more than an empty one, for those that take from it without asking.
func (b Bucket) capped(now time.Time) Bucket {
	if b.Debt(now) > b.span() {
		b.Full = now.Add(b.span())
	}
	return b
}
