package envoy

import (
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// What the services beside Envoy must call things by. All header names are in lower case, as Envoy hands them over.
const (
	// ContextHeader carries the trusted context. Written by ext_authz; without it nothing reaches a worker.
	ContextHeader = "x-spokegate-context"
	// PrefillContextHeader carries the context for the prefill leg, which names the worker that computes the prompt for the one that
	// answers. Written by ext_authz, where there is such a leg.
	PrefillContextHeader = "x-spokegate-prefill-context"
	// RanksHeader tells workers which of their data-parallel ranks is to serve: "ip:port=rank,ip:port=rank". Written by who
	// names the workers, ext_authz or a picker, where one of them has several.
	RanksHeader = "x-spokegate-ranks"
	// EndpointHeader carries ClusterName(endpoint). Written by ext_authz; the route follows it. It does not go upstream.
	EndpointHeader = "x-spokegate-endpoint"
	// ClientRequestIDHeader carries the request id that the client sent, if any: x-request-id is Envoy's own by then.
	ClientRequestIDHeader = "x-spokegate-client-request-id"
	// ClientTraceHeader carries the traceparent that the client sent, if any and if there is tracing: traceparent is Envoy's own
	// by then. It does not go upstream.
	ClientTraceHeader = "x-spokegate-client-traceparent"
	// ClientAddressHeader carries the client's IP: in a check over HTTP always, and over gRPC where Door.TrustedHops is not 0, for the
	// source of such a call is the nearest proxy's then. It does not go upstream.
	ClientAddressHeader = "x-spokegate-client-address"
	// ExplainHeader is the one header of ours that a client may send, and that may go back to a client.
	ExplainHeader = "x-spokegate-explain"
	// RefusedHeader is set on a response by a worker's shim that did not serve. The meter sees it, the client does not.
	RefusedHeader = "x-spokegate-refused"
	// NoteHeader is set by a worker's shim, which reads every answer that it passes on, to say what it used: of one that comes whole
	// it is the note itself (openai.AppendNote), which begins with NoteWhole; of a stream it is NoteStream, and a note follows each event in
	// a comment. Envoy keeps the last note that has passed, and the access log brings it to the door; the meter is not told of such
	// an answer, and the client does not see the header.
	NoteHeader = "x-spokegate-note"
	NoteStream = "stream"
	NoteWhole  = "{"
	// RequestIDHeader is Envoy's own request id, a UUID: the admission's id.
	RequestIDHeader = "x-request-id"
	// AnthropicIDHeader is where Anthropic's clients look for the id of a request in an answer. It has RequestIDHeader's value.
	AnthropicIDHeader = "request-id"
	// AttemptHeader counts the attempts, from 1, on the request that a worker receives.
	AttemptHeader = "x-envoy-attempt-count"
	// MaxRetriesHeader, written by ext_authz or by a picker, says how many workers may be tried after the first: the length
	// of its list less one. Without it Envoy tries once more than the list is long (up to Door.Retries), finds nobody, and
	// answers by itself: what the last worker said, RefusedHeader included, is lost. It does not go upstream.
	MaxRetriesHeader = "x-envoy-max-retries"
)

// Dynamic metadata.
const (
	// AuthzNamespace is where Envoy puts the dynamic metadata of an ext_authz answer, whichever of the filters asked.
	AuthzNamespace = "envoy.filters.http.ext_authz"
	// LBNamespace is the load balancer's: a picker behind ext_proc writes DestinationKey here, Envoy writes ServedKey.
	LBNamespace = "envoy.lb"
	// SubsetNamespace holds the endpoints to which a picker is bound (Endpoint Picker Protocol).
	SubsetNamespace = "envoy.lb.subset_hint"
	// DestinationKey holds the ordered endpoints: one string, "ip:port,ip:port", best first. In AuthzNamespace when the
	// pick rides on the admission, in LBNamespace when a picker answers. Its header twin has the same name.
	DestinationKey = "x-gateway-destination-endpoint"
	// ServedKey holds the last host that Envoy tried, "ip:port". After total failure it names one that did not serve.
	ServedKey = "x-gateway-destination-endpoint-served"
	// OwnNamespace holds, for the access log, the values of RefusedHeader and NoteHeader under those names. The latter is replaced
	// by each note that passes in a stream.
	OwnNamespace = "spokegate"
)

// Attributes, which Envoy evaluates when a response begins, and sends to the meter with its headers.
const (
	// AttributesKey is the name under which they arrive.
	AttributesKey = "envoy.filters.http.ext_proc"
	// IDAttribute is RequestIDHeader's value.
	IDAttribute = "request.id"
	// PathAttribute is the request's path without its query.
	PathAttribute = "request.url_path"
	// ClusterAttribute is ClusterName of the endpoint; missing: the request was not admitted.
	ClusterAttribute = "xds.cluster_name"
	// UpstreamAttribute is the last host that Envoy tried, "ip:port"; missing: none was, and the answer is Envoy's own.
	UpstreamAttribute = "upstream.address"
)

// How an ext_authz call over gRPC says what is asked: initial metadata, one of the two values. Over HTTP it is CheckFull always.
const (
	// CheckKey is the metadata key.
	CheckKey = "x-spokegate-check"
	// CheckHead asks about path and key alone, before the body of a large POST is read. It must count nothing; a yes to it
	// lets nothing pass.
	CheckHead = "head"
	// CheckFull asks for the admission. Every request that gets that far is asked so exactly once. A POST comes with its
	// body; any other method comes without, whatever the client sends.
	CheckFull = "full"
)

// CheckPrefix stands before the client's path and query in a check over HTTP, and makes a query of them, for an HTTP server reads paths,
// and refuses some by itself. The method, the host and the body are the client's as well; CheckHeaders, authorization and
// ClientAddressHeader come along. The answer 200 lets the request pass; any other is the client's.
const CheckPrefix = "/?"

// DeniedAs is the status of an answer that lets nothing pass, where it means another for the client, who never sees this one: 200 would be
// a yes, and of a 5xx Envoy believes that admission failed, and drops its headers and body.
func DeniedAs(status int) int {
	switch status {
	case http.StatusOK:
		return 460
	case http.StatusServiceUnavailable:
		return 463
	}
	return status
}

var (
	// CheckHeaders are the headers of a client, or kept of it, that admission reads, authorization besides. One that came twice is
	// joined by a comma.
	CheckHeaders = []string{RequestIDHeader, ClientRequestIDHeader, ClientTraceHeader, ExplainHeader, "x-api-key", "x-session-id",
		"content-type", "content-encoding"}
	// AdmittedHeaders of a yes go upstream. DestinationKey becomes metadata, and does not.
	AdmittedHeaders = []string{ContextHeader, PrefillContextHeader, EndpointHeader, RanksHeader, MaxRetriesHeader}
	// ToldHeaders go to the client, whatever the answer is. A worker's of these names do not.
	ToldHeaders = []string{ExplainHeader, "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
		"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"}
	// DeniedHeaders of a refusal go to the client as well.
	DeniedHeaders = []string{"content-type", "www-authenticate", "retry-after", "retry-after-ms", "x-should-retry", AnthropicIDHeader}
)

// AccessLogName is the log_name of the HTTP access log entries.
const AccessLogName = "door"

// MeterMissedStat is Envoy's counter of responses that nobody metered: anything but 0 deserves an alert.
const MeterMissedStat = "http." + listenerName + ".ext_proc.meter.failure_mode_allowed"

// RunningStat is Envoy's gauge of clients' requests that run, ConnectedStat that of their connections.
const (
	RunningStat   = "http." + listenerName + ".downstream_rq_active"
	ConnectedStat = "http." + listenerName + ".downstream_cx_active"
)

// clusterPrefix keeps endpoints and the door's own clusters apart: no policy can name the door's.
const clusterPrefix = "endpoint/"

// ClusterName is the Envoy cluster of an endpoint of the policy, and the value of EndpointHeader.
func ClusterName(endpoint string) string { return clusterPrefix + endpoint }

// Names inside the configuration.
const (
	doorCluster      = "spokegate-door"      // admission and ADS
	admissionCluster = "spokegate-admission" // of large bodies, over HTTP/1.1, on a socket of its own
	meterCluster     = "spokegate-meter"     // on connections of its own, so that what it is sent does not queue before an admission
	logCluster       = "spokegate-log"       // the access log, on connections that wait for a door process that hangs
	pickerCluster    = "spokegate-picker"

	collectorCluster = "spokegate-collector"

	listenerName = "door"
	routeName    = "door"
)

// ownPrefix is that of our own headers.
const ownPrefix = "x-spokegate-"

// Header prefixes that only the door writes. ExplainHeader is the exception; so are x-request-id, whose client value is kept
// aside, and x-envoy-*, which Envoy writes anew.
var ownedPrefixes = []string{
	ownPrefix, "x-gateway-destination-endpoint", "x-gateway-inference-", "x-llm-d-", "x-data-parallel-", "x-prefiller-",
	"x-envoy-",
}

// secretHeaders never go upstream.
var secretHeaders = []string{"authorization", "proxy-authorization", "x-api-key", "cookie"}

// EndpointOf gives the endpoint of a value of EndpointHeader; empty if it is none.
func EndpointOf(cluster string) string {
	endpoint, ok := strings.CutPrefix(cluster, clusterPrefix)
	if !ok {
		return ""
	}
	return endpoint
}

// HeaderValue reads a header of an ext_proc message: Envoy fills raw_value, other gateways value.
func HeaderValue(h *corev3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}
