package extproc

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
)

// TestWholeAnswer: what Envoy has read of an answer is what a meter would have counted, if all of it has passed.
func TestWholeAnswer(t *testing.T) {
	cut := &alsdatav3.ResponseFlags{UpstreamConnectionTermination: true}
	type said = map[string]any
	for name, c := range map[string]struct {
		said    said
		sent    uint64
		flags   *alsdatav3.ResponseFlags
		outcome string
		prompt  uint64
		anomaly string
	}{
		"whole":                      {said{envoy.WholeHeader: "bytes=812", "usage.prompt_tokens": 300, "usage.completion_tokens": 20}, 812, nil, "complete", 300, ""},
		"whole, and the client left": {said{envoy.WholeHeader: "bytes=812", "usage.prompt_tokens": 300}, 812, &alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}, "complete", 300, ""},
		"the worker broke off":       {said{envoy.WholeHeader: "bytes=812", "usage.prompt_tokens": 300}, 500, cut, "upstream_cut", 300, ""},
		"other bytes than were told": {said{envoy.WholeHeader: "bytes=813", "usage.prompt_tokens": 300}, 812, nil, "complete", 300, "meter_cut"},
		"nothing said of it":         {said{envoy.WholeHeader: "bytes=812"}, 812, nil, "complete", 0, "bad_usage"},
		"not marked":                 {said{"usage.prompt_tokens": 300}, 812, nil, "complete", 0, "unmetered"},
		"marked by nobody of ours":   {said{envoy.WholeHeader: "812", "usage.prompt_tokens": 300}, 812, nil, "complete", 0, "unmetered"},
		"no number":                  {said{envoy.WholeHeader: "bytes=812", "usage.prompt_tokens": "300"}, 812, nil, "complete", 0, "bad_usage"},
		"no count":                   {said{envoy.WholeHeader: "bytes=812", "usage.prompt_tokens": 300, "usage.completion_tokens": 1.5}, 812, nil, "complete", 300, "bad_usage"},
		"no JSON":                    {said{envoy.WholeHeader: "bytes=812", envoy.UnreadKey: true}, 812, nil, "complete", 0, "bad_json"},
		"another operation's":        {said{envoy.WholeHeader: "bytes=812", "usage.input_tokens": 300}, 812, nil, "complete", 0, "bad_usage"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Millisecond)
			e := entry(200, c.flags)
			e.Response.ResponseBodyBytes = c.sent
			e.Request.Path = "/v1/chat/completions?a=b"
			own, err := structpb.NewStruct(c.said)
			if err != nil {
				t.Fatal(err)
			}
			e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.OwnNamespace: own}}
			b.logged(e)
			r := b.next()
			anomaly := ""
			if len(r.Anomalies) == 1 {
				anomaly = r.Anomalies[0]
			}
			if r.Outcome != c.outcome || uint64(r.GetPromptTokens()) != c.prompt || anomaly != c.anomaly || len(r.Anomalies) > 1 || r.GetResponseBytes() != int64(c.sent) {
				t.Errorf("%v", r)
			}
		})
	}
	if n := len(openai.UsagePaths()); n != usageMembers {
		t.Errorf("%d members of usage, room for %d", n, usageMembers)
	}
}
