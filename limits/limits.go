package limits

import (
	"context"
	"errors"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// Limiter is a store of counters with the judgement built in. Safe for concurrent use.
//
// Time is an argument. A store in memory never lets its own time run backwards: a now before the latest one it has seen counts
// as that one. A store that several doors share goes by its own clock.
type Limiter interface {
	// Acquire checks all limits, then writes all, atomically. A refusal is a Decision, not an error.
	//
	// An admission that is open, or was a short while ago, gets its first decision again and changes nothing. A refused one
	// has left no trace, so it is judged anew: the limit may have been raised meanwhile.
	//
	// An error (no admission id, context done, store away) comes with the zero Decision, which is no. A store that lies
	// across a network may have written all the same: release the hold of the ask to be sure.
	Acquire(ctx context.Context, now time.Time, ask Ask) (Decision, error)

	// Renew keeps the leases of all the holds for another lease time, in one round trip. It never shortens them and never
	// brings back what was released or has expired: those holds it returns as lost, and their requests run on uncounted.
	// After an error any of them may have been renewed or not; to renew them again is harmless.
	Renew(ctx context.Context, now time.Time, hs []Hold) (lost []Hold, err error)

	// Release frees the leases of a hold and settles what it reserved, once: doing it again does nothing. What was taken from
	// a rate stays taken. Reserved tokens are corrected to those used in the period in which they were reserved; where that
	// period is over nothing is done, in either direction. A done context does not stop it. A store across a network returns
	// before it is done: nobody waits for it.
	Release(ctx context.Context, now time.Time, h Hold, used Used) error

	// Look says how each limit stands, in the order of Decide, and changes nothing.
	Look(ctx context.Context, now time.Time, ls []policy.Limit) ([]Standing, error)
}

// Ask is one request's question.
type Ask struct {
	// Admission names the request, one name for each request ever. Never empty.
	Admission string
	// Limits that apply, with different IDs. They are judged in this order and the first of equals is the binding one.
	Limits []policy.Limit
	// Tokens to reserve in every limit of tokens: an estimate of the prompt and of the answer. Not below 0.
	Tokens int64

	doors int // as many ways the limits are shared: what other stores have counted is, too; 0: not at all
}

// Used is what came of an admitted request. The zero value says that it used no tokens.
type Used struct {
	// Tokens that count, of prompt and answer; below 0: not known, and the reservation stands.
	Tokens int64
	// Unserved says that no worker took it: then it counts in no quota of requests either.
	Unserved bool
}

// Decision is the answer. The zero value is no.
type Decision struct {
	Admitted bool
	// Requests and Tokens are, of the limits on requests (and their concurrency) and of those on tokens, how the strictest
	// stands: when refused, one that refuses comes first, with the longest wait; then the one with the least share left, this
	// request counted if it is admitted. Nil when there is no such limit.
	Requests, Tokens *Standing
	// Hold is what the request occupies from now on. Zero when refused.
	Hold Hold
}

// Binding is the stricter of the two standings; nil when no limit applies. When refused, it is what refuses.
func (d Decision) Binding() *Standing {
	r, t := d.Requests, d.Tokens
	switch {
	case r == nil:
		return t
	case t == nil:
		return r
	case stricter(t.Refuses, r.Refuses, t.RetryAfter, r.RetryAfter, t.Remaining, r.Remaining, t.Max, r.Max):
		return t
	}
	return r
}

// Standing is how one limit stands after the decision.
type Standing struct {
	Limit policy.Limit
	Kind  Kind
	// Max is what there is when nothing is used: the burst of a rate, the places of a concurrency limit, a period's quota.
	Max int64
	// Used so far, this request counted if it is admitted. Above Max where the limit was lowered, or more tokens were used
	// than reserved.
	Used int64
	// Remaining is Max less Used: requests or tokens that could pass right now; never negative.
	Remaining int64
	// Reset is the time until Remaining is Max again, if nobody asks.
	Reset time.Duration
	// Refuses says that it refuses this request, and RetryAfter after which time it would let it pass; below 0 (Never): at no
	// time, for the request alone is above the limit.
	Refuses    bool
	RetryAfter time.Duration
}

// Kind is what a limit counts.
type Kind uint8

// A limit may have several kinds at once; each has a standing of its own. This is the order in which they are judged.
const (
	Rate Kind = iota + 1
	Concurrency
	TokensPerMinute
	RequestsPerDay
	TokensPerDay
	RequestsPerMonth
	TokensPerMonth
)

// String gives the word used in messages and metrics.
func (k Kind) String() string {
	switch k {
	case Rate:
		return "rate"
	case Concurrency:
		return "concurrency"
	case TokensPerMinute:
		return "tokens_per_minute"
	case RequestsPerDay:
		return "requests_per_day"
	case TokensPerDay:
		return "tokens_per_day"
	case RequestsPerMonth:
		return "requests_per_month"
	case TokensPerMonth:
		return "tokens_per_month"
	}
	return "none"
}

// Hold is what an admitted request occupies. It says by itself what is to be freed, so that a release depends neither on
// today's policy still having the limit nor on the store remembering the admission.
type Hold struct {
	Admission string
	// Leases are the IDs of the concurrency limits that count this admission. Not to be changed.
	Leases []string
	// Quotas are the IDs of the limits with a quota of any kind. Each counts one request and Reserved tokens for this
	// admission, in all three periods that held At, by the store's clock. Not to be changed.
	Quotas   []string
	Reserved int64
	At       time.Time

	local bool // in the memory of this process
}

// holdOf is the hold of an ask that is admitted at this moment.
func holdOf(ask Ask, now time.Time) Hold {
	h := Hold{Admission: ask.Admission}
	leases, quotas := countHeld(ask.Limits)
	if leases+quotas == 0 {
		return h
	}
	ids := make([]string, leases+quotas)
	if leases > 0 {
		h.Leases = ids[:0:leases]
	}
	if quotas > 0 {
		h.Quotas, h.Reserved, h.At = ids[leases:leases], max(0, ask.Tokens), now
	}
	for i := range ask.Limits {
		l := &ask.Limits[i]
		if l.Concurrency > 0 {
			h.Leases = append(h.Leases, l.ID)
		}
		if hasQuota(l) {
			h.Quotas = append(h.Quotas, l.ID)
		}
	}
	return h
}

// countHeld is how many leases, and how many limits with quotas, an admission under these limits holds.
func countHeld(ls []policy.Limit) (leases, quotas int) {
	for i := range ls {
		if ls[i].Concurrency > 0 {
			leases++
		}
		if hasQuota(&ls[i]) {
			quotas++
		}
	}
	return leases, quotas
}

// Renewable says whether there is anything to keep by renewing it: leases, or the memory of what is to be settled.
func (h Hold) Renewable() bool { return len(h.Leases)+len(h.Quotas) > 0 }

// ErrNoAdmission answers an ask without an admission id: all such asks would count as one.
var ErrNoAdmission = errors.New("limits: an ask needs an admission id")
