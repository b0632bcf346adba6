package limits

import (
	"time"

	"github.com/spokegate/spokegate/policy"
)

// ConcurrencyRetry is the wait that a full concurrency limit asks for. Nobody knows when a stream ends; this is a guess.
const ConcurrencyRetry = time.Second

// Fact is what a store knows of one limit at the moment of the question.
type Fact struct {
	Limit policy.Limit
	// Bucket as stored; the zero value when nothing is stored.
	Bucket Bucket
	// InFlight leases that have not expired.
	InFlight int64
}

// Decide judges all facts and changes none. The Hold of the answer is left to the store.
//
// What the store writes when the answer is yes: for every limit with a rate Bucket.Fit(now, limit).Take(now), for every
// limit with concurrency a lease. When the answer is no: Bucket.Fit(now, limit) where a bucket is stored, which uses up
// nothing, and without which a wait told under a changed limit would not come true.
func Decide(now time.Time, facts []Fact) Decision {
	v := verdict{admitted: true}
	for i := range facts {
		f := &facts[i]
		if f.Limit.RequestsPerSecond > 0 {
			v.add(f, Rate, rateStanding(now, f))
		}
		if f.Limit.Concurrency > 0 {
			v.add(f, Concurrency, concurrencyStanding(f))
		}
	}
	return v.decision()
}

// level is the part of a standing that judging needs; small, because it is copied for each limit.
type level struct {
	max, remaining    int64 // remaining after this request, if it passes
	reset, retryAfter time.Duration
	refuses           bool
}

// stricter is the one order by which limits combine: who refuses comes before who admits, then the longer wait, then the
// smaller share left. Equals keep their order.
func (l level) stricter(o level) bool {
	if l.refuses != o.refuses {
		return l.refuses
	}
	if l.refuses {
		return l.retryAfter > o.retryAfter
	}
	return float64(l.remaining)*float64(o.max) < float64(o.remaining)*float64(l.max)
}

type verdict struct {
	admitted bool
	fact     *Fact
	kind     Kind
	level    level
}

func (v *verdict) add(f *Fact, k Kind, l level) {
	if l.refuses {
		v.admitted = false
	}
	if v.fact == nil || l.stricter(v.level) {
		v.fact, v.kind, v.level = f, k, l
	}
}

func (v *verdict) decision() Decision {
	d := Decision{Admitted: v.admitted}
	if v.fact != nil {
		d.Requests = &Standing{
			Limit: v.fact.Limit, Kind: v.kind, Max: v.level.max, Remaining: v.level.remaining,
			Reset: v.level.reset, RetryAfter: v.level.retryAfter,
		}
	}
	return d
}

func rateStanding(now time.Time, f *Fact) level {
	b := f.Bucket.Fit(now, f.Limit)
	l := level{max: int64(b.Burst)}
	if wait := b.Wait(now); wait > 0 {
		l.refuses, l.retryAfter = true, wait
	} else {
		b = b.Take(now)
	}
	l.remaining, l.reset = b.Left(now), b.Debt(now)
	return l
}

func concurrencyStanding(f *Fact) level {
	l := level{max: int64(f.Limit.Concurrency)}
	used := f.InFlight
	if used >= l.max { // the n-th passes, the n+1-th does not
		l.refuses, l.retryAfter = true, ConcurrencyRetry
	} else {
		used++
	}
	l.remaining = max(0, l.max-used)
	l.reset = ConcurrencyRetry // something is in use in either case
	return l
}
