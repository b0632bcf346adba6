package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// Engine is one kind of engine behind the shim. What differs between kinds stays in one file each.
type Engine interface {
	// Kind is the engine's name in worker/v1: "sim", "vllm", "sglang", "trtllm" or "attached".
	Kind() string
	// Run keeps the engine alive (or watches it) until ctx ends, then stops it and returns when it is gone. It tells each
	// change of the engine's life, from one goroutine.
	Run(ctx context.Context, log *slog.Logger, tell func(Life))
	// Base is what paths are appended to, and Transport what reaches it. Both are fixed and may be used before Run.
	Base() *url.URL
	Transport() http.RoundTripper
}

// Life is what an engine is at a moment: starting, ready or failed.
type Life struct {
	State workerv1.State
	// Reason is for people; required with STATE_FAILED. Of one that starts it is how far it is.
	Reason string
	// Cause is the reason in one of a few words: see the causes. Only with STATE_FAILED.
	Cause string
	// Degraded is what the engine's log told that makes it worse than it seems, as "CAUSE: DETAIL"; empty: nothing.
	Degraded string
	Description
}

// Causes of a failure.
const (
	causeStart  = "start"  // it did not become ready, or not in time
	causeCrash  = "crash"  // its process ended
	causeMemory = "memory" // the same, for want of memory
	causeSilent = "silent" // it runs and does not answer
	causeHung   = "hung"   // it answers and generates nothing
)

// Description is what the doors must know of one run of the engine.
type Description struct {
	// Epoch names this run; a new one means that no block of before is held.
	Epoch string
	// BlockSize in tokens and Blocks of the device; 0: not known.
	BlockSize uint32
	Blocks    uint64
}

// KVAnnouncer is an engine that may announce its KV blocks.
type KVAnnouncer interface {
	// KVSource is where it does; false: it announces none, and why stands in Why. Fixed before Run.
	KVSource() (KVSource, bool)
}

// KVSource is where an engine's KV events are read. They carry prompts as token ids: no address but one that the shim alone
// reaches, unless the operator chose it.
type KVSource struct {
	// Events are the ZeroMQ addresses of the publishers, by data-parallel rank from 0, "ipc://PATH" or "tcp://HOST:PORT". The
	// engine binds them; they come and go with it. Replay are those of their replay sockets; "" where there is none.
	Events, Replay []string
	// Kind of engine: its dialect of the events.
	Kind string
	// ModelDir is the folder with the model's tokenizer.json; empty: not known.
	ModelDir string
	// Why there is none.
	Why string
}

func newEpoch() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// newProbe is a transport for looking at an engine's health: it dials each time, for an open connection would hide that
// nobody can connect any more. dial: nil, by the address.
func newProbe(dial dialer) *http.Transport {
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
}

// engineWrites is how much is gathered for one write to an engine, in bytes: a request with its header, if it is not larger.
const engineWrites = 8 << 10

// newTransport reaches an engine: no proxy, no compression that we would have to undo, no limit on how long an answer
// may take to begin (a prompt may queue), and enough idle connections for a full engine. Its buffers are small, for a
// stream holds them as long as it lives; large bodies pass them by. dial: nil, by the address.
func newTransport(dial dialer) *http.Transport {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &http.Transport{
		DialContext:            dial.direct,
		DisableCompression:     true,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        4 * time.Second, // uvicorn, which most engines run in, closes after 5
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        engineWrites,
	}
}
