// Command bench measures what a door costs, against the same Envoy without it, and puts one pair under load.
//
//	go run ./test/bench                 the figures, in under ten minutes; writes bench.json
//	go run ./test/bench -suite load     1,500 streams, then 300 requests a second; fails on the first broken promise
//
// Both sides of every comparison stand before the same shim and the same engine, with the same client:
//
//	client ──▶ Envoy + door ─────┐
//	                             ├──▶ shim ──▶ engine (canned answers, in this process)
//	client ──▶ Envoy, plain ─────┘
//
// A shim serves only trusted contexts, each once. So the shim joins a second door that lives in this process, and the
// client brings contexts made ahead of time to plain Envoy: see plain.go.
//
// It promises that rounds of both sides alternate, that a ratio is taken within a round and the median is reported, that
// a rate of whole answers is the one of the round's median slice of 50 ms (so that a machine which stands still is no figure), that
// warm-up and the making of contexts are outside of what is timed, and that an answer that is not whole and right ends the run. It does
// not promise that absolute figures mean anything: client, engine, shim and both Envoys share the machine's cores.
package main
