// Package xds brings policy to a spoke: the half that receives. A [Source] offers candidate revisions; the [Agent] stages
// each, checks and compiles it, keeps it on disk, puts it in force, and answers ACK; or it answers NACK with the reason,
// and the revision before it goes on.
//
// The package promises that what is in force was checked whole, and is on disk or said not to be, that it is one revision at a time, that a
// restart without a source serves the last good one, and that every offer is answered once. It promises no more than one
// offer at a time, so nothing in it needs a queue.
//
// What a spoke revokes by itself (policy.EditRevoked) lies over every revision. A running agent takes a change up within a
// second; one that cannot be read leaves revoked what was, and a start that does not know what is revoked fails.
//
// It does not decide what a good policy is (package policy does), and has nothing to do with Envoy's own xDS (package
// envoy). [File] is the source of a spoke that stands alone; package follow has that of a spoke with a hub, and package push the
// hub's half.
package xds
