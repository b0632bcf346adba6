// Package sim is a simulated engine: it speaks the HTTP dialect of a language model server without a model.
//
// It promises answers that the official SDKs parse, usage that is exact by its own count, a block cache that makes
// a repeated prefix faster, times taken from a rate table, and an account of every request for proofs
// (GET /sim/requests). Equal requests get equal text. It stops within milliseconds of a client that leaves and counts
// what it generated until then. It always names itself a simulator: in the text, in system_fingerprint and in its headers.
//
// It does not promise sense: the text means nothing, a token is four bytes, and an embedding has no geometry.
// Differences from a real engine that matter: prefill is done one request at a time, blocks in use may be evicted, and
// with a token limit given it always generates up to that limit unless a stop sequence ends it.
//
// The package uses nothing else of this module, so that it cannot share a mistake with what it tests.
package sim
