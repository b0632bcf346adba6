package router

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNoWorker: the endpoint has no worker at all that answers by itself.
	ErrNoWorker = errors.New("router: no worker")
	// ErrNoneEligible: it has workers, but none of them is in the subset asked for.
	ErrNoneEligible = errors.New("router: no worker in the subset")
	// ErrBusy is what every BusyError is.
	ErrBusy = errors.New("router: all workers are busy")
)

// BusyError: all workers that are eligible are beyond a busy threshold. Nothing is remembered of it: the next ask is judged anew.
type BusyError struct {
	// RetryAfter is when the first of them should be below its threshold, by how fast their load fell lately: 1 s to 30 s.
	RetryAfter time.Duration
	// Sheddable says that the ask was.
	Sheddable bool
}

// Error says so.
func (e *BusyError) Error() string { return fmt.Sprintf("%v; try again in %v", ErrBusy, e.RetryAfter) }

// Unwrap is ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// Roles of workers. One without a role does all by itself.
const (
	RolePrefill = "prefill" // computes prompts for others; never chosen to answer
	RoleDecode  = "decode"  // answers; may have its prompts computed by others, where there are any
)

// Worker is one address that may be picked.
type Worker struct {
	Addr string // ip:port, IPv6 in brackets; names the worker
	// Ranks are the data-parallel ranks of its engine, each a choice of its own. 0 or 1: it has but one.
	Ranks int
	// Role is RolePrefill, RoleDecode, or empty.
	Role string
	// Blocks are the KV blocks of the device, of each rank, and BlockTokens the tokens in each; 0: not known, and then busy
	// thresholds go by what the worker reports alone.
	Blocks, BlockTokens int
}

// Report is what a worker says of one of its ranks.
type Report struct {
	// At is when it was heard. One older than a few seconds counts as none.
	At time.Time
	// Running and Waiting are requests in the engine, whoever sent them.
	Running, Waiting int
	// CacheUsed is the share of the device's KV blocks that requests use, from 0 to 1; 0 where it does not say.
	CacheUsed float64
}
