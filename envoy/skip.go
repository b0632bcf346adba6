package envoy

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matchv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typematcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
)

type predicate = matchv3.Matcher_MatcherList_Predicate

// unless wraps a filter that is skipped when p holds. A header that p asks for and that is missing makes p false, so the
// filter runs.
func unless(p *predicate, name, typeName string, config proto.Message) *hcmv3.HttpFilter {
	skip := &matchv3.Matcher_OnMatch{OnMatch: &matchv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: "skip", TypedConfig: pack(&skipv3.SkipFilter{})},
	}}
	return filter(name, &extensionv3.ExtensionWithMatcher{
		ExtensionConfig: &corev3.TypedExtensionConfig{Name: typeName, TypedConfig: pack(config)},
		XdsMatcher: &matchv3.Matcher{MatcherType: &matchv3.Matcher_MatcherList_{MatcherList: &matchv3.Matcher_MatcherList{
			Matchers: []*matchv3.Matcher_MatcherList_FieldMatcher{{Predicate: p, OnMatch: skip}},
		}}},
	})
}

// isNoted holds when the response has a NoteHeader that begins so. Until it comes nothing is decided: the filter sees the request.
func isNoted(prefix string) *predicate {
	return over(NoteHeader, &typematcherv3.HttpResponseHeaderMatchInput{HeaderName: NoteHeader},
		&matchv3.StringMatcher{MatchPattern: &matchv3.StringMatcher_Prefix{Prefix: prefix}})
}

func over(name string, input proto.Message, m *matchv3.StringMatcher) *predicate {
	return &predicate{MatchType: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input:   &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: pack(input)},
			Matcher: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: m},
		},
	}}
}

func not(p *predicate) *predicate {
	return &predicate{MatchType: &matchv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: p}}
}

func either(ps ...*predicate) *predicate {
	return &predicate{MatchType: &matchv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &matchv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: ps},
	}}
}
