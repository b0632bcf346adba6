package extproc

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
)

// TestReportedAnswer: what a shim says of a whole answer is what a meter would have counted, if as many bytes have passed Envoy.
func TestReportedAnswer(t *testing.T) {
	cut := &alsdatav3.ResponseFlags{UpstreamConnectionTermination: true}
	for name, c := range map[string]struct {
		said    string
		sent    uint64
		flags   *alsdatav3.ResponseFlags
		outcome string
		prompt  uint64
		anomaly string
	}{
		"whole":                       {"bytes=812 prompt=300 completion=20 from=engine", 812, nil, "complete", 300, ""},
		"the engine's error":          {"bytes=812 from=none failed", 812, nil, "upstream_error", 0, ""},
		"whole, and the client left":  {"bytes=812 prompt=300 completion=20 from=engine", 812, &alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}, "complete", 300, ""},
		"the worker broke off":        {"bytes=812 prompt=300 completion=20 from=engine", 500, cut, "upstream_cut", 300, ""},
		"other bytes than were told":  {"bytes=813 prompt=300 completion=20 from=engine", 812, nil, "complete", 300, "meter_cut"},
		"no report that we know":      {"bytes=812 tokens=7", 812, nil, "complete", 0, "unmetered"},
		"there is doubt in the count": {"bytes=812 prompt=300 completion=20 from=engine doubt=bad_usage", 812, nil, "complete", 300, "bad_usage"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Millisecond)
			e := entry(200, c.flags)
			e.Response.ResponseBodyBytes = c.sent
			e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				envoy.OwnNamespace: {Fields: map[string]*structpb.Value{envoy.UsageHeader: structpb.NewStringValue(c.said)}}}}
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
}

// TestWatchedAnswer: where the meter has seen an answer, its count is used, and a worker that has said otherwise is named.
func TestWatchedAnswer(t *testing.T) {
	const answer = `{"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	for said, anomalies := range map[string]int{
		"bytes=22 prompt=7 completion=3 from=engine": 0,
		"bytes=22 prompt=6 completion=3 from=engine": 1,
	} {
		for _, logFirst := range []bool{true, false} {
			b := newBench(t, time.Hour)
			e := entry(200, nil)
			e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
				envoy.OwnNamespace:   {Fields: map[string]*structpb.Value{envoy.UsageHeader: structpb.NewStringValue(said)}},
				envoy.AuthzNamespace: {Fields: map[string]*structpb.Value{envoy.WatchKey: structpb.NewStringValue(envoy.Watch)}}}}
			if logFirst {
				b.logged(e)
			}
			b.stream(t.Context(), true, admitted(":status", "200", "content-type", "application/json"), body(answer, true))
			if !logFirst {
				b.logged(e)
			}
			if r := b.next(); r.GetPromptTokens() != 7 || len(r.GetAnomalies()) != anomalies || anomalies == 1 && r.GetAnomalies()[0] != "misreported" {
				t.Errorf("%q, log first %v: %v", said, logFirst, r)
			}
		}
	}
}
