// Package replay sends the requests of a trace to simulated workers, once for each way of choosing a worker, and says what
// came of it: how much of the prompts was found in caches, how long the first token took, how evenly the work lay.
//
// A simulated worker computes prompts one after the other at a fixed rate, but for the leading blocks that its cache holds;
// answers then come at a fixed rate each, beside one another. The cache drops what was used longest ago, ends of prompts
// before their beginnings. Requests come when the trace says, however slow the answers are (an open loop).
//
// It promises that the same trace, settings and seed give the same numbers, and that every way of choosing is judged on the
// same requests. It does not promise that an engine takes as long: batching, chunked prefill and memory for answers are left out.
package replay
