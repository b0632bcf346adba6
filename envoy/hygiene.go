package envoy

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tidyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	tometav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// earlyMutation runs before Envoy looks at a request in any other way: first the owned headers go, then the client's
// request id and trace are kept under names of ours, and their own names are freed for Envoy's.
func (d Door) earlyMutation() *corev3.TypedExtensionConfig {
	ms := stripOwned()
	ms = append(ms, keep(ClientRequestIDHeader, "%REQ("+RequestIDHeader+")%"), remove(RequestIDHeader))
	ms = append(ms, d.dropClientTrace()...)
	return &corev3.TypedExtensionConfig{
		Name:        "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: pack(&earlyv3.HeaderMutation{Mutations: ms}),
	}
}

// noteShim moves what a shim says, its refusal or its note, from the response into metadata. It is the first filter of the chain, so
// the last to see a response's headers: the meter has seen them by then, the access log finds the metadata, the client gets neither.
func noteShim() *hcmv3.HttpFilter {
	c := &tometav3.Config{}
	for _, h := range []string{RefusedHeader, NoteHeader} {
		c.ResponseRules = append(c.ResponseRules, &tometav3.Config_Rule{
			Header:          h,
			OnHeaderPresent: &tometav3.Config_KeyValuePair{MetadataNamespace: OwnNamespace, Key: h},
			Remove:          true,
		})
	}
	return filter("envoy.filters.http.header_to_metadata", c)
}

// tidy tells admission who the client is, where the one who connects is a proxy, and takes the owned headers from what goes to
// a client.
func (d Door) tidy() *hcmv3.HttpFilter {
	m := &tidyv3.Mutations{ResponseMutations: stripOwned()}
	if d.TrustedHops > 0 {
		m.RequestMutations = append(m.RequestMutations, keep(ClientAddressHeader, "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"))
	}
	return filter("envoy.filters.http.header_mutation", &tidyv3.HeaderMutation{Mutations: m})
}

func stripOwned() []*mutationv3.HeaderMutation {
	var ms []*mutationv3.HeaderMutation
	for _, p := range ownedPrefixes {
		m := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: p}}
		if rest, ok := strings.CutPrefix(ExplainHeader, p); ok {
			m = regex(regexp.QuoteMeta(p) + allBut(rest))
		}
		ms = append(ms, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
			RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: m},
		}})
	}
	return ms
}

// allBut is a regular expression that matches every string but the words, of which none may begin another. RE2 has no operator for
// that: a string differs from a word because it leaves it at some letter, ends before it, or goes on after it.
func allBut(words ...string) string {
	rests := map[string][]string{} // by first letter
	for _, w := range words {
		if w == "" {
			return ".+"
		}
		rests[w[:1]] = append(rests[w[:1]], w[1:])
	}
	letters := slices.Sorted(maps.Keys(rests))
	expr := "(?:[^" + regexp.QuoteMeta(strings.Join(letters, "")) + "].*"
	for _, l := range letters {
		expr += "|" + regexp.QuoteMeta(l) + allBut(rests[l]...)
	}
	return expr + ")?"
}

func remove(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

// keep sets a header to a formatted value, and sets nothing when the value is empty.
func keep(name, format string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: overwrite(name, format)}}
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func regex(expr string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{
		SafeRegex: &matcherv3.RegexMatcher{Regex: expr},
	}}
}
