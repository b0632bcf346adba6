package envoy

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// authorization asks the door process, by filters that differ in what they wait for:
//
//   - bare: no POST. Asks for the admission at once, whatever body may follow.
//   - head: a POST whose body is large or of unknown size. Asks about path and key before the body is read.
//   - large: behind it. Reads the body, and asks for the admission over HTTP.
//   - full: any other POST. Reads the body, and asks for the admission.
//
// All of them fail closed. Which of them a request meets is its first route's word (see questions): a filter that is off costs
// nothing. The last is on, unless a route turns it off.
func (d Door) authorization() []*hcmv3.HttpFilter {
	bare, head := filter(bareFilter, d.authz("bare", CheckFull)), filter(headFilter, d.authz("head", CheckHead))
	large := filter(largeFilter, d.withBody(d.plain("large")))
	bare.Disabled, head.Disabled, large.Disabled = true, true, true
	return []*hcmv3.HttpFilter{bare, head, large, filter(AuthzNamespace, d.withBody(d.authz("full", CheckFull)))}
}

// Names of the filters that are off but where a route turns them on.
const (
	bareFilter  = "spokegate.authz.bare"
	headFilter  = "spokegate.authz.head"
	largeFilter = "spokegate.authz.large"
)

// questions are the routes of what is not admitted yet, by what of a request admission is asked about. Envoy makes a request's
// filters by its first route, and no later one adds to them or takes away.
func (d Door) questions(to *routev3.Route_Route) []*routev3.Route {
	on := pack(&authzv3.ExtAuthzPerRoute{Override: &authzv3.ExtAuthzPerRoute_CheckSettings{CheckSettings: &authzv3.CheckSettings{}}})
	off := pack(&routev3.FilterConfig{Disabled: true})
	return []*routev3.Route{
		{Name: "no-body", Match: anyPath(unlike(":method", exactly(http.MethodPost))), Action: to,
			TypedPerFilterConfig: map[string]*anypb.Any{bareFilter: on, AuthzNamespace: off}},
		{Name: "large-body", Match: anyPath(unlike("content-length", regex(atMost(d.HeadCheckAbove)))), Action: to,
			TypedPerFilterConfig: map[string]*anypb.Any{headFilter: on, largeFilter: on, AuthzNamespace: off}},
		{Name: "small-body", Match: anyPath(), Action: to},
	}
}

// unlike matches requests whose header does not match, or is missing.
func unlike(header string, m *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: header, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m},
		InvertMatch: true, TreatMissingHeaderAsEmpty: true}
}

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

// atMost is a regular expression for the decimal numbers 0 to n, without leading zeros: shorter ones, those that are
// smaller from some digit on, and n itself. A number written with leading zeros does not match, and so counts as large.
func atMost(n int64) string {
	digits := strconv.FormatInt(n, 10)
	alternatives := []string{"0", digits}
	if len(digits) > 1 {
		alternatives = append(alternatives, fmt.Sprintf("[1-9][0-9]{0,%d}", len(digits)-2))
	}
	for i, d := range []byte(digits) {
		low := byte('0')
		if i == 0 {
			low = '1'
		}
		if d > low {
			alternatives = append(alternatives, fmt.Sprintf("%s[%c-%c][0-9]{%d}", digits[:i], low, d-1, len(digits)-i-1))
		}
	}
	return strings.Join(alternatives, "|")
}

// authz asks over gRPC, which takes many small checks at once on one connection.
func (d Door) authz(stats, check string) *authzv3.ExtAuthz {
	return &authzv3.ExtAuthz{
		StatPrefix:          stats,
		TransportApiVersion: corev3.ApiVersion_V3,
		Services: &authzv3.ExtAuthz_GrpcService{
			GrpcService: grpcService(doorCluster, d.CheckTimeout, &corev3.HeaderValue{Key: CheckKey, Value: check}),
		},
		StatusOnError:     &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		ClearRouteCache:   true, // the route follows EndpointHeader, which the answer brings
		ValidateMutations: true,
	}
}

// withBody has the body read, and sent along.
func (d Door) withBody(a *authzv3.ExtAuthz) *authzv3.ExtAuthz {
	a.WithRequestBody = &authzv3.BufferSettings{MaxRequestBytes: uint32(d.BodyLimit), PackAsBytes: true}
	return a
}

// plain asks for the admission over HTTP/1.1: a large body crosses in one piece and is copied once, where gRPC cuts it into frames and
// copies it into a message.
func (d Door) plain(stats string) *authzv3.ExtAuthz {
	client := "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"
	if d.TrustedHops > 0 {
		client = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
	}
	a := d.authz(stats, CheckFull)
	a.AllowedHeaders = oneOf(CheckHeaders)
	a.Services = &authzv3.ExtAuthz_HttpService{HttpService: &authzv3.HttpService{
		ServerUri: &corev3.HttpUri{
			Uri: "http://" + admissionCluster, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: admissionCluster}, Timeout: secs(d.CheckTimeout),
		},
		PathPrefix:           CheckPrefix,
		AuthorizationRequest: &authzv3.AuthorizationRequest{HeadersToAdd: []*corev3.HeaderValue{{Key: ClientAddressHeader, Value: client}}},
		// What is not listed goes nowhere. Envoy overwrites in a request, and in an answer it adds: see route.
		AuthorizationResponse: &authzv3.AuthorizationResponse{
			AllowedUpstreamHeaders:        oneOf(AdmittedHeaders),
			DynamicMetadataFromHeaders:    oneOf([]string{DestinationKey}),
			AllowedClientHeaders:          oneOf(slices.Concat(DeniedHeaders, ToldHeaders)),
			AllowedClientHeadersOnSuccess: oneOf(ToldHeaders),
		},
	}}
	return a
}

func oneOf(names []string) *matcherv3.ListStringMatcher {
	list := &matcherv3.ListStringMatcher{}
	for _, n := range names {
		list.Patterns = append(list.Patterns, exactly(n))
	}
	return list
}
