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

	// Release frees the leases of a hold. Doing it again, late, or for a hold that has expired does nothing.
	// What was taken from a rate stays taken. A done context does not stop it. A store across a network may return before it
	// is done.
	Release(ctx context.Context, now time.Time, h Hold) error
}

// Ask is one request's question.
type Ask struct {
	// Admission names the request, one name for each request ever. Never empty.
	Admission string
	// Limits that apply, with different IDs. They are judged in this order and the first of equals is the binding one.
	Limits []policy.Limit
}

// Decision is the answer. The zero value is no.
type Decision struct {
	Admitted bool
	// Binding is, when refused, the limit that refuses, with the longest wait; when admitted, the one with the least share
	// left, this request counted. Nil when no limit applies.
	Binding *Standing
	// Hold is what the request occupies from now on. Zero when refused.
	Hold Hold
}

// Standing is how one limit stands after the decision.
type Standing struct {
	Limit policy.Limit
	Kind  Kind
	// Max is what there is when nothing is used: the burst of a rate, the places of a concurrency limit.
	Max int64
	// Remaining requests that could pass right now; never negative.
	Remaining int64
	// Reset is the time until Remaining is Max again, if nobody asks.
	Reset time.Duration
	// RetryAfter is the time after which this limit would let the refused request pass; 0 when it does now.
	RetryAfter time.Duration
}

// Kind is what a limit counts.
type Kind uint8

// A limit may have several kinds at once; each has a standing of its own.
const (
	Rate Kind = iota + 1
	Concurrency
)

// String gives the word used in messages and metrics.
func (k Kind) String() string {
	switch k {
	case Rate:
		return "rate"
	case Concurrency:
		return "concurrency"
	}
	return "none"
}

// Hold is what an admitted request occupies. It says by itself what is to be freed, so that a release depends neither on
// today's policy still having the limit nor on the store remembering the admission.
type Hold struct {
	Admission string
	// Leases are the IDs of the concurrency limits that count this admission. Not to be changed.
	Leases []string

	local bool // in the memory of this process
}

// ErrNoAdmission answers an ask without an admission id: all such asks would count as one.
var ErrNoAdmission = errors.New("limits: an ask needs an admission id")
