package xds

import (
	"context"

	"github.com/spokegate/spokegate/policy"
)

// Candidate is what a source offers: a set, or why there is none.
type Candidate struct {
	// Cut may carry a revision, of a source that numbers; without a number the agent gives the next.
	Cut *policy.Cut
	// Digest is what the source says of the content, so that nothing can be lost on the way; nil: it says nothing.
	Digest []byte
	// Err: it could not even be read. The agent refuses it with this reason.
	Err error
	// From is where it comes from, for people.
	From string
}

// Source offers candidates, the newest whenever there is a newer one, one at a time.
type Source interface {
	// Run offers until ctx is done, then returns nil; an error means that it cannot go on. It soon makes a first offer, of
	// what it has or of why it has nothing. Run may be called again after it returned, and goes on where it was. held is what
	// is in force when it is called; nil: nothing.
	//
	// offer returns when the candidate is answered: before that, Ack or Nack was called once, from the same goroutine.
	// What was refused is not offered again until it changed; what comes after it is offered even if it is the same as
	// what was accepted last, so that the source hears an ACK of it.
	Run(ctx context.Context, held *policy.Cut, offer func(Candidate)) error
	// Ack: the candidate is in force, as this revision.
	Ack(revision uint64)
	// Nack: the candidate is refused, and the revision before it goes on. again says that the fault is not in the
	// candidate, which is in force and not on disk (that is full), so that the same one is worth another offer later.
	Nack(reason string, again bool)
}
