// Package test holds the tests of the whole: they run the shipped binary and the real Envoy, and look at what a client,
// a worker, an engine and an operator see.
//
// It promises that nothing it starts is left behind, and that it waits on facts, never on time alone. It does not test
// packages one by one: their own tests do.
package test
