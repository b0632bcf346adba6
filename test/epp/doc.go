// Package epp drives an endpoint picker through a real Envoy, as gateways do: it knows nothing of the picker but the protocol.
// Without more it drives `spokegate epp`; PICKER_ADDR names another (docs/epp.md).
package epp
