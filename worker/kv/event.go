package kv

import (
	"errors"
	"fmt"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Hash is an engine's name of a block. It means nothing beside the engine, rank and group that it came from. Signed and
// unsigned numbers of the same bits are one hash; bytes of any length are hashed to 64 bits.
type Hash uint64

// Kind of an event.
type Kind uint8

// What engines tell. Unread is an event that could not be read, or of a kind that is not known.
const (
	Unread Kind = iota
	Stored
	Removed
	Cleared
)

// Event is one change of an engine's cache. Its slices belong to the Batch.
type Event struct {
	Kind   Kind
	Why    error // of Unread
	Hashes []Hash
	Tier   workerv1.Tier // unspecified: the medium is not known
	Medium string        // as it was sent, where the tier is unspecified
	Group  uint16

	// Of Stored alone.
	Parent    Hash
	HasParent bool
	Tokens    []uint32
	BlockSize int
	Attention string // kv_cache_spec_kind; empty: not told
	LoRA      []byte // what names the adapter; nil: none
	Extra     [][]byte
	HasExtra  bool // the engine tells what keeps blocks apart, be it nothing
}

// Batch is one payload.
type Batch struct {
	Time   float64 // Unix seconds
	Rank   int     // -1: not told
	Events []Event
}

// tierOf knows the media by any case: not all engines' connectors write them alike. None named: the device.
func tierOf(medium []byte) workerv1.Tier {
	var upper [16]byte
	if len(medium) > len(upper) {
		return workerv1.Tier_TIER_UNSPECIFIED
	}
	for i, c := range medium {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper[i] = c
	}
	switch string(upper[:len(medium)]) {
	case "GPU", "":
		return workerv1.Tier_TIER_DEVICE
	case "CPU", "CPU_PINNED":
		return workerv1.Tier_TIER_HOST
	case "DISK":
		return workerv1.Tier_TIER_DISK
	case "STORAGE", "EXTERNAL":
		return workerv1.Tier_TIER_SHARED
	}
	return workerv1.Tier_TIER_UNSPECIFIED
}

func (e *Event) setMedium(medium []byte) {
	if e.Tier = tierOf(medium); e.Tier == workerv1.Tier_TIER_UNSPECIFIED {
		e.Medium = string(medium)
	}
}

var (
	errNoHashes = errors.New("an event without block hashes")
	errMisfit   = errors.New("hashes, tokens, block size and extra keys do not fit each other")
)

// check holds the fields of an event against each other. Stored without tokens says that a block which is known already is
// in one more medium.
func (e *Event) check() error {
	n := len(e.Hashes)
	switch {
	case e.Kind == Cleared:
		return nil
	case n == 0:
		return errNoHashes
	case e.Kind == Removed || len(e.Tokens) == 0:
		return nil
	case e.BlockSize == 0 && len(e.Tokens)%n == 0:
		e.BlockSize = len(e.Tokens) / n
	}
	if len(e.Tokens) != n*e.BlockSize || len(e.Extra) != 0 && len(e.Extra) != n {
		return errMisfit
	}
	return nil
}

// indexed says whether a group of blocks serves whole prefixes: the others (windows, state spaces) do not hold what a prompt
// of theirs had.
func indexed(attention string) bool {
	switch attention {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return true
	}
	return false
}

func (k Kind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	case Unread:
		return "unread"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}
