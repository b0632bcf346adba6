// Package deploy has no code of its own: its tests hold what operators are given (charts, the YAML rendered from them, units) to
// what the documents promise of it.
package deploy
