package envoy

import (
	"strings"

	jsonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/json_to_metadata/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/openai"
)

// readUsage has Envoy itself read what an answer says of its usage, for the access log: of one that its shim has marked as whole and
// small. So what is billed is read from the bytes that the client gets, and not by the word of the shim. Envoy waits for the whole
// body, which the shim had before it sent the first byte.
func readUsage() *hcmv3.HttpFilter {
	rules := &jsonv3.JsonToMetadata_MatchRules{AllowContentTypes: []string{"application/json"}}
	for _, path := range openai.UsagePaths() {
		r := &jsonv3.JsonToMetadata_Rule{
			OnPresent: &jsonv3.JsonToMetadata_KeyValuePair{MetadataNamespace: OwnNamespace, Key: path},
			OnError: &jsonv3.JsonToMetadata_KeyValuePair{MetadataNamespace: OwnNamespace, Key: UnreadKey,
				ValueType: &jsonv3.JsonToMetadata_KeyValuePair_Value{Value: structpb.NewBoolValue(true)}},
		}
		for member := range strings.SplitSeq(path, ".") {
			r.Selectors = append(r.Selectors, &jsonv3.JsonToMetadata_Selector{Selector: &jsonv3.JsonToMetadata_Selector_Key{Key: member}})
		}
		rules.Rules = append(rules.Rules, r)
	}
	return unless(not(isWhole()), "spokegate.usage", "envoy.filters.http.json_to_metadata", &jsonv3.JsonToMetadata{ResponseRules: rules})
}
