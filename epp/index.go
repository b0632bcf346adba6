package epp

import (
	"time"
)

// How much is known of what a worker holds.
const (
	Indexed    = "indexed"    // it announces its blocks, prompts of its model can be rendered, and its engine reports what follows from that
	Predictive = "predictive" // by what it was sent: it announces nothing, or not yet
	Degraded   = "degraded"   // by what it was sent, though it should be indexed: see the reason
)

// Why a worker is not indexed, in a word.
const (
	causeStarting    = "starting"    // it has told nothing yet
	causeNone        = "none"        // it announces no blocks
	causeUnreachable = "unreachable" // its announcement cannot be followed
	causeEvents      = "events"      // its engine's events do not come, or cannot be read
	causeModel       = "model"       // its tokenizer or chat template is not known here
	causeProfile     = "profile"     // they are others than those of the endpoint
	causeBlockSize   = "block_size"  // its events and its engine tell of blocks of different sizes
	causeSilent      = "silent"      // it serves, and has announced nothing at all
	causeDiverging   = "diverging"   // its engine reports other cached tokens than it announces
)

// Index is how much is known of what a worker holds.
type Index struct {
	Endpoint, Addr string
	State          string
	Cause, Reason  string    // why not Indexed: in a word, and for people
	Since          time.Time // when it began to be so
}

// String is the state, with its reason.
func (i Index) String() string {
	if i.Reason == "" {
		return i.State
	}
	return i.State + " (" + i.Reason + ")"
}

// standing is how a worker's announcement stands by its own word.
type standing struct{ state, cause, reason string }

var indexed = standing{state: Indexed}

func predictive(cause, reason string) standing { return standing{Predictive, cause, reason} }
func degraded(cause, reason string) standing   { return standing{Degraded, cause, reason} }
