// Package envoy is a door's Envoy configuration as a Go value: bootstrap, listener, filter chain, route, clusters and
// endpoints, printed as YAML or served to the door's own Envoy over ADS.
//
// It promises that nothing passes without a yes from ext_authz that carries a trusted context, that only workers which the
// door named are tried and in that order, that no header which the door owns comes in from a client or goes out to one,
// that a stranger's body is not buffered beyond HeadCheckAbove, and that what Envoy answers by itself is JSON wherever
// Envoy lets it be. It does not decide anything about a request, and does not run Envoy: see Command.
//
// The chain, in the order in which a request meets it (a response meets it from the end):
//
//	early header mutation   the client's request id and trace kept aside, owned headers out  hygiene.go
//	tracing                 a span of the requests that Envoy chooses, if there is a collector trace.go
//	tidy                    responses: a shim's refusal or note kept, owned headers out       hygiene.go
//	ext_authz ×4            bare (no POST), head and large (POST, large), full (POST, with the body): by the first route    authz.go
//	rbac                    a trusted context or 403                                          filters.go
//	meter                   ext_proc in observability mode, of what no shim notes             filters.go
//	notes                   Lua: the last note of a stream that has passed into metadata      notes.go, notes.lua
//	picker                  only with PickerSocket: ext_proc in full duplex                   filters.go
//	router                  to the cluster that x-spokegate-endpoint names                    routes.go, clusters.go
package envoy
