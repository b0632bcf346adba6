package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// route is the one route, which matches all: without a matching route Envoy would skip ext_authz. It leads to the cluster
// that ext_authz wrote into EndpointHeader; no header or no such cluster is 503.
func (d Door) route() *routev3.RouteConfiguration {
	action := &routev3.RouteAction{
		ClusterSpecifier:            &routev3.RouteAction_ClusterHeader{ClusterHeader: EndpointHeader},
		ClusterNotFoundResponseCode: routev3.RouteAction_SERVICE_UNAVAILABLE,
		Timeout:                     secs(0), // a response may take as long as it moves
		IdleTimeout:                 secs(d.IdleTimeout),
		RetryPolicy:                 d.retries(),
	}
	return &routev3.RouteConfiguration{
		Name: routeName,
		VirtualHosts: []*routev3.VirtualHost{{
			Name: "all", Domains: []string{"*"},
			IncludeRequestAttemptCount: true,
			// Removed as the request goes out, after every filter has read them. A shim gets ContextHeader, x-request-id,
			// AttemptHeader and what else ext_authz wrote, and must itself take x-spokegate-* away before the engine.
			RequestHeadersToRemove: upstreamRemovals(),
			ResponseHeadersToAdd:   []*corev3.HeaderValueOption{anthropicID()},
			Routes: []*routev3.Route{{
				Name:   "by-endpoint",
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: action},
			}},
		}},
	}
}

func anthropicID() *corev3.HeaderValueOption {
	return overwrite(AnthropicIDHeader, "%REQ("+RequestIDHeader+")%")
}

// retries go to the next worker of the list: override_host takes another address for each attempt, and none twice.
func (d Door) retries() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:              "connect-failure,reset,retriable-status-codes",
		RetriableStatusCodes: []uint32{503},
		NumRetries:           u32(d.Retries),
		RetryBackOff:         &routev3.RetryPolicy_RetryBackOff{BaseInterval: secs(5 * time.Millisecond), MaxInterval: secs(50 * time.Millisecond)},
	}
}

// upstreamRemovals: nothing may compress on the way either, for the meter reads plain bytes; and what a client expects of a
// server, Envoy has answered.
func upstreamRemovals() []string {
	return append(append([]string(nil), secretHeaders...),
		EndpointHeader, ExplainHeader, ClientRequestIDHeader, ClientTraceHeader, DestinationKey, "accept-encoding", "expect")
}
