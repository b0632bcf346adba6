// Package deploy has no code of its own. Its tests, most of them with the tag kube (make test-kube), hold what operators are given,
// the charts and the YAML rendered from them, to what the documents promise of it.
package deploy
