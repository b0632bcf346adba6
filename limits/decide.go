package limits

import (
	"time"

	"github.com/spokegate/spokegate/policy"
)

// ConcurrencyRetry is the wait that a full concurrency limit asks for. Nobody knows when a stream ends; this is a guess.
const ConcurrencyRetry = time.Second

// Never is the RetryAfter of a request that alone is above a quota.
const Never time.Duration = -1

// Fact is what a store knows of one limit at the moment of the question.
type Fact struct {
	Limit policy.Limit
	// Bucket as stored; the zero value when nothing is stored.
	Bucket Bucket
	// InFlight leases that have not expired.
	InFlight int64
	// Periods as stored, by Span, also those that are over; the zero value when nothing is stored.
	Periods [spans]Period
	// Elsewhere is what other stores have counted; it counts as if it had been used here.
	Elsewhere Beside
}

// Decide judges all facts for a request of so many tokens, and changes none. The Hold of the answer is left to the store.
//
// What the store writes when the answer is yes: for every limit with a rate Bucket.Fit(now, limit).Take(now), for every
// limit with concurrency a lease, for every limit with a quota of any kind each of the three Period.Fit(bounds of now).Take(tokens).
// When the answer is no: Bucket.Fit(now, limit) where a bucket is stored, which uses up nothing, and without which a wait told
// under a changed limit would not come true.
func Decide(now time.Time, facts []Fact, tokens int64) Decision {
	c := calendarOf(now)
	return decide(now, &c, facts, tokens)
}

// decide is Decide with the calendar of now.
func decide(now time.Time, c *calendar, facts []Fact, tokens int64) Decision {
	v := verdict{admitted: true}
	for i := range facts {
		f := &facts[i]
		f.levels(now, c, tokens, func(k Kind, l level) { v.add(f, k, l) })
	}
	return v.decision()
}

// standings gives every fact as it stands, in the order of Decide. Whether it refuses is asked for a request of one token.
func standings(now time.Time, c *calendar, facts []Fact) []Standing {
	var all []Standing
	for i := range facts {
		f := &facts[i]
		f.levels(now, c, 1, func(k Kind, l level) {
			s := strictest{f, k, l}
			all = append(all, s.standing(false))
		})
	}
	return all
}

// levels judges a fact by each of its kinds.
func (f *Fact) levels(now time.Time, c *calendar, tokens int64, each func(Kind, level)) {
	if f.Limit.RequestsPerSecond > 0 {
		each(Rate, rateLevel(now, f))
	}
	if f.Limit.Concurrency > 0 {
		each(Concurrency, concurrencyLevel(f))
	}
	if !hasQuota(&f.Limit) {
		return
	}
	for k := TokensPerMinute; k <= TokensPerMonth; k++ {
		if quota := quotaOf(&f.Limit, k); quota > 0 {
			each(k, quotaLevel(now, c, f, k, quota, tokens))
		}
	}
}

// level is the part of a standing that judging needs; small, because it is copied for each limit.
type level struct {
	max, used  int64
	takes      int64         // what this request adds to used if it passes; 0 where it is refused
	reset      time.Duration // if it does not pass
	resetTaken time.Duration // if it does
	retryAfter time.Duration // of one that refuses
	refuses    bool
}

// stricter compares by what is left if the request passes.
func (l *level) stricter(o *level) bool {
	return stricter(l.refuses, o.refuses, l.retryAfter, o.retryAfter, max(0, l.max-l.used-l.takes), max(0, o.max-o.used-o.takes), l.max, o.max)
}

// stricter is the one order by which limits combine: who refuses comes before who admits, then never before the longer wait,
// then the smaller share left. Equals keep their order.
func stricter(refuses, otherRefuses bool, wait, otherWait time.Duration, left, otherLeft, of, otherOf int64) bool {
	switch {
	case refuses != otherRefuses:
		return refuses
	case refuses && (wait < 0 || otherWait < 0):
		return otherWait >= 0
	case refuses:
		return wait > otherWait
	}
	return float64(left)*float64(otherOf) < float64(otherLeft)*float64(of)
}

// strictest is the one that binds among those added.
type strictest struct {
	fact  *Fact
	kind  Kind
	level level
}

type verdict struct {
	admitted         bool
	requests, tokens strictest
}

func (v *verdict) add(f *Fact, k Kind, l level) {
	if l.refuses {
		v.admitted = false
	}
	s := &v.requests
	if k.ofTokens() {
		s = &v.tokens
	}
	if s.fact == nil || l.stricter(&s.level) {
		s.fact, s.kind, s.level = f, k, l
	}
}

func (v *verdict) decision() Decision {
	d := Decision{Admitted: v.admitted}
	switch {
	case v.requests.fact != nil && v.tokens.fact != nil:
		both := &[2]Standing{v.requests.standing(v.admitted), v.tokens.standing(v.admitted)} // one allocation
		d.Requests, d.Tokens = &both[0], &both[1]
	case v.requests.fact != nil:
		s := v.requests.standing(v.admitted)
		d.Requests = &s
	case v.tokens.fact != nil:
		s := v.tokens.standing(v.admitted)
		d.Tokens = &s
	}
	return d
}

func (s *strictest) standing(admitted bool) Standing {
	l := &s.level
	out := Standing{Limit: s.fact.Limit, Kind: s.kind, Max: l.max, Used: l.used, Reset: l.reset, Refuses: l.refuses, RetryAfter: l.retryAfter}
	if admitted {
		out.Used, out.Reset = l.used+l.takes, l.resetTaken
	}
	out.Remaining = max(0, out.Max-out.Used)
	return out
}

func rateLevel(now time.Time, f *Fact) level {
	b := f.Bucket.Fit(now, f.Limit)
	l := level{max: int64(b.Burst), reset: b.Debt(now), retryAfter: b.Wait(now)}
	l.used = l.max - b.Left(now)
	if l.refuses = l.retryAfter > 0; !l.refuses {
		l.takes, l.resetTaken = 1, l.reset+b.Interval
	}
	return l
}

func concurrencyLevel(f *Fact) level {
	l := level{max: int64(f.Limit.Concurrency), used: f.InFlight}
	if l.used > 0 {
		l.reset = ConcurrencyRetry
	}
	if l.refuses = l.used >= l.max; l.refuses { // the n-th passes, the n+1-th does not
		l.retryAfter = ConcurrencyRetry
	} else {
		l.takes, l.resetTaken = 1, ConcurrencyRetry
	}
	return l
}

func quotaLevel(now time.Time, c *calendar, f *Fact, k Kind, quota, tokens int64) level {
	span := k.span()
	p := f.Periods[span].Fit(c[span].start, c[span].end)
	l := level{max: quota, used: min(p.used(k)+f.Elsewhere.of(k), maxCount)}
	takes := int64(1)
	if k.ofTokens() {
		takes = max(0, tokens)
	}
	end := c[span].end
	if p.Start == end { // of the next period already: the clock was set back
		_, end = span.Bounds(time.Unix(end, 0))
	}
	left := time.Unix(end, 0).Sub(now)
	if l.used > 0 {
		l.reset = left
	}
	switch {
	case takes > l.max:
		l.refuses, l.retryAfter = true, Never
	case takes > l.max-l.used:
		l.refuses, l.retryAfter = true, left
	default:
		l.takes = takes
		if l.used+takes > 0 {
			l.resetTaken = left
		}
	}
	return l
}
