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
	// Reason is for people; required with STATE_FAILED.
	Reason string
	Description
}

// Description is what the doors must know of one run of the engine.
type Description struct {
	// Epoch names this run; a new one means that no block of before is held.
	Epoch string
	// BlockSize in tokens and Blocks of the device; 0: not known.
	BlockSize uint32
	Blocks    uint64
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
		WriteBufferSize:        8 << 10,
	}
}
