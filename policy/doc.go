// Package policy is the revision that a spoke acts on: which models exist, which endpoint serves each, which teams and
// keys may use them, and within what limits.
//
// A policy has three forms. People write a [File] (YAML); [Parse] reads it strictly and answers every mistake at once, each
// with its line and column. What travels and is kept on disk is a [policyv1.Set]; [Save] and [Load] keep the last good
// one. What a request meets is a [Snapshot]: [Compile] checks a set whole and builds the look-up.
//
// A spoke may revoke keys by itself, when nobody can change the policy: a [Revocation] lies over every revision, and is no
// part of any. [EditRevoked] keeps them beside the last good policy, [Snapshot.Revoke] lays them over a snapshot.
//
// The package promises that a Snapshot is valid and immutable: whoever holds one need not check anything again, and may
// share it between goroutines. It promises that nothing in it is permitted that the set does not name: the zero value of
// every type refuses.
//
// It does not number revisions, watch files or talk to anyone (package xds does), and it counts no requests (package
// limits does).
package policy
