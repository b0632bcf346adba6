package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// route leads to the cluster that ext_authz wrote into EndpointHeader; no such cluster is 503. What has no such header is not
// admitted yet, or never: it has routes too, for without one Envoy would skip ext_authz. They lead nowhere, and the
// meter is not told of what is refused there.
func (d Door) route() *routev3.RouteConfiguration {
	action := &routev3.RouteAction{
		ClusterSpecifier:            &routev3.RouteAction_ClusterHeader{ClusterHeader: EndpointHeader},
		ClusterNotFoundResponseCode: routev3.RouteAction_SERVICE_UNAVAILABLE,
		Timeout:                     secs(0), // a response may take as long as it moves
		IdleTimeout:                 secs(d.IdleTimeout),
		RetryPolicy:                 d.retries(),
	}
	to := &routev3.Route_Route{Route: action}
	routes := []*routev3.Route{{Name: "by-endpoint", Match: anyPath(present(EndpointHeader)), Action: to}}
	for _, r := range d.questions(to) {
		if r.TypedPerFilterConfig == nil {
			r.TypedPerFilterConfig = map[string]*anypb.Any{}
		}
		r.TypedPerFilterConfig[meterFilter] = pack(&procv3.ExtProcPerRoute{Override: &procv3.ExtProcPerRoute_Disabled{Disabled: true}})
		routes = append(routes, r)
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
			// Of a worker's answer, before admission's own are added to it.
			ResponseHeadersToRemove: ToldHeaders,
			Routes:                  routes,
		}},
	}
}

// anyPath matches every path of requests with these headers.
func anyPath(headers ...*routev3.HeaderMatcher) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}, Headers: headers}
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

// upstreamRemovals: nothing may compress on the way either, for meters read plain bytes; and what a client expects of a
// server, Envoy has answered.
func upstreamRemovals() []string {
	return append(append([]string(nil), secretHeaders...),
		EndpointHeader, ExplainHeader, ClientRequestIDHeader, ClientTraceHeader, ClientAddressHeader, DestinationKey, "accept-encoding", "expect")
}
