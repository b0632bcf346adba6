package envoy

import (
	"strings"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// filters is the chain. Its order is the design's; tidy and noteShim are first so that they see responses last.
func (d Door) filters() []*hcmv3.HttpFilter {
	fs := []*hcmv3.HttpFilter{d.tidy(), noteShim()}
	fs = append(fs, d.authorization()...)
	fs = append(fs, demandContext(), d.meter(), keepNotes())
	if d.PickerSocket != "" {
		fs = append(fs, d.picker())
	}
	return append(fs, filter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true}))
}

func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}

// demandContext lets nothing pass without a trusted context, whatever went wrong before it.
func demandContext() *hcmv3.HttpFilter {
	return filter("envoy.filters.http.rbac", &rbacfilterv3.RBAC{Rules: &rbacv3.RBAC{
		Action: rbacv3.RBAC_ALLOW,
		Policies: map[string]*rbacv3.Policy{"trusted-context": {
			Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
			Principals:  []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Header{Header: present(ContextHeader)}}},
		}},
	}})
}

func present(header string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: header, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
}

// meterFilter is the meter's name in the chain.
const meterFilter = "spokegate.meter"

// meterHeaders are all that the meter is sent of a response's headers: what it reads, and no secret among it.
var meterHeaders = []string{":status", "content-type", RefusedHeader}

// meter is told of response headers and response body, and not waited for. When it is away the response goes on, and Envoy
// counts failure_mode_allowed.
//
// It hears of a request when the response begins, so that one without a response costs nothing: whose response it is, the
// attributes say, which come once. Metadata would come again with each piece of the body.
//
// Of an answer that its shim notes it does not hear at all: see NoteHeader.
func (d Door) meter() *hcmv3.HttpFilter {
	read := &matcherv3.ListStringMatcher{}
	for _, h := range meterHeaders {
		read.Patterns = append(read.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: h}})
	}
	return unless(either(isNoted(NoteStream), isNoted(NoteWhole)), meterFilter, "envoy.filters.http.ext_proc", &procv3.ExternalProcessor{
		StatPrefix:        "meter",
		GrpcService:       grpcService(meterCluster, 0),
		FailureModeAllow:  true,
		ObservabilityMode: true,
		// A stream whose client left is held for so long and then reset, and what the meter has not read by then is lost: a busy
		// machine needs more than the 100 ms that would do on a quiet one. The record of such a request waits for it. A meter
		// that has seen the end of the response closes by itself.
		DeferredCloseTimeout: secs(3 * time.Second),
		ProcessingMode: &procv3.ProcessingMode{
			RequestHeaderMode: procv3.ProcessingMode_SKIP, ResponseHeaderMode: procv3.ProcessingMode_SEND,
			RequestBodyMode: procv3.ProcessingMode_NONE, ResponseBodyMode: procv3.ProcessingMode_STREAMED,
			RequestTrailerMode: procv3.ProcessingMode_SKIP, ResponseTrailerMode: procv3.ProcessingMode_SKIP,
		},
		ResponseAttributes: []string{IDAttribute, PathAttribute, ClusterAttribute, UpstreamAttribute},
		ForwardRules:       &procv3.HeaderForwardingRules{AllowedHeaders: read},
	})
}

// picker speaks the Endpoint Picker Protocol. It may not touch what the door wrote, but for RanksHeader, which is its own, and cannot move a request to another
// endpoint. In this mode no timeout applies: the pings on its connection cut off one that hangs.
//
// It is not asked about responses, as other gateways do: every refusal would wait for it, and what Envoy refuses before it
// has understood the headers would be closed without an answer. The flight knows the worker that served.
func (d Door) picker() *hcmv3.HttpFilter {
	return filter("spokegate.picker", &procv3.ExternalProcessor{
		StatPrefix:  "picker",
		GrpcService: grpcService(pickerCluster, 0),
		ProcessingMode: &procv3.ProcessingMode{
			RequestHeaderMode: procv3.ProcessingMode_SEND, ResponseHeaderMode: procv3.ProcessingMode_SKIP,
			RequestBodyMode: procv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: procv3.ProcessingMode_NONE,
			RequestTrailerMode: procv3.ProcessingMode_SEND, ResponseTrailerMode: procv3.ProcessingMode_SKIP,
		},
		RouteCacheAction: procv3.ExternalProcessor_RETAIN,
		StatusOnError:    &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		MetadataOptions: &procv3.MetadataOptions{
			ForwardingNamespaces: namespaces(AuthzNamespace, LBNamespace, SubsetNamespace),
			ReceivingNamespaces:  namespaces(LBNamespace),
		},
		MutationRules: &mutationv3.HeaderMutationRules{
			AllowEnvoy:         yes(), // for MaxRetriesHeader
			DisallowExpression: &matcherv3.RegexMatcher{Regex: ownPrefix + allBut(strings.TrimPrefix(RanksHeader, ownPrefix)) + "|" + RequestIDHeader},
		},
	})
}

func namespaces(untyped ...string) *procv3.MetadataOptions_MetadataNamespaces {
	return &procv3.MetadataOptions_MetadataNamespaces{Untyped: untyped}
}
