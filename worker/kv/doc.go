// Package kv follows which KV blocks an engine holds and announces them to pickers as the bytes that they stand for.
//
// An engine publishes events over ZeroMQ: this block was stored (as token ids), that one removed. A feed follows one
// data-parallel rank of it, with replay, gaps and restarts. The table turns tokens into bytes by the model's vocabulary and
// names each block by a key of our own. The announcer serves pickers over gRPC (worker/v1 Blocks): a snapshot, then changes.
//
// It promises that a picker which follows ends with exactly what the table holds, however it lags or breaks off; that a slow
// picker holds up nobody; that no token, text or hash of the engine's leaves the process; and that what cannot be read is
// counted and said instead of guessed. It does not promise that a removal is the last copy's: engines differ (see table).
package kv
