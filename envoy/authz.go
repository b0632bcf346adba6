package envoy

import (
	"fmt"
	"net/http"
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

// authorization asks the door process, by one of three filters that differ in what they wait for:
//
//   - bare: no POST. Asks for the admission at once, whatever body may follow.
//   - head: a POST whose body is large or of unknown size. Asks about path and key before the body is read.
//   - full: any POST. Reads the body, and asks for the admission.
//
// All of them fail closed. Which of them a request meets is its first route's word (see questions): a filter that is off costs
// nothing. The one that reads bodies is on, unless a route turns it off.
func (d Door) authorization() []*hcmv3.HttpFilter {
	full := d.authz("full", CheckFull)
	full.WithRequestBody = &authzv3.BufferSettings{MaxRequestBytes: uint32(d.BodyLimit), PackAsBytes: true}
	bare, head := filter(bareFilter, d.authz("bare", CheckFull)), filter(headFilter, d.authz("head", CheckHead))
	bare.Disabled, head.Disabled = true, true
	return []*hcmv3.HttpFilter{bare, head, filter(AuthzNamespace, full)}
}

// Names of the filters that are off but where a route turns them on.
const (
	bareFilter = "spokegate.authz.bare"
	headFilter = "spokegate.authz.head"
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
			TypedPerFilterConfig: map[string]*anypb.Any{headFilter: on}},
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
