package flight

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestGenAI holds the sums and counts against what the records say.
func TestGenAI(t *testing.T) {
	at := func(ms int) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(int64(ms))) }
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	for _, r := range []*usagev1.Record{
		{Operation: "chat", Model: "m", Team: "t", Outcome: usage.OutcomeComplete, Stream: true, AdmittedAt: at(1000), FirstByteAt: at(1500), EndedAt: at(2500),
			PromptTokens: proto.Int64(8), CompletionTokens: proto.Int64(5)},
		// Unknown is not 0, and no first byte is no first token.
		{Operation: "messages", Model: "m", Team: "t", Outcome: usage.OutcomeNotServed, Stream: true, AdmittedAt: at(1000), EndedAt: at(1250)},
		// Not streamed: its first byte is not that of a token. Its end lies before its beginning: two clocks.
		{Operation: "embeddings", Model: "m", Team: "t", Outcome: usage.OutcomeComplete, AdmittedAt: at(1000), FirstByteAt: at(900), EndedAt: at(900), PromptTokens: proto.Int64(2)},
		{Operation: "none of ours", Model: "m", Team: "t", Outcome: usage.OutcomeClientCut, AdmittedAt: at(1000), EndedAt: at(1000), CompletionTokens: proto.Int64(0)},
	} {
		m.finished(r)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if h := s.GetHistogram(); h.GetSampleCount() > 0 {
				var labels []string
				for _, l := range s.GetLabel() {
					if l.GetName() != "gen_ai_provider_name" && l.GetName() != "gen_ai_request_model" && l.GetValue() != "" {
						labels = append(labels, l.GetValue())
					}
				}
				name := strings.TrimPrefix(f.GetName(), "gen_ai_") + " " + strings.Join(labels, " ")
				got[name] = h.GetSampleSum()
			}
		}
	}
	want := map[string]float64{
		"server_request_duration_seconds chat": 1.5, "server_request_duration_seconds not_served chat": .25,
		"server_request_duration_seconds embeddings": 0, "server_request_duration_seconds client_cut unknown": 0,
		"server_time_to_first_token_seconds chat": .5, "server_time_per_output_token_seconds chat": .25,
		"client_token_usage chat input": 8, "client_token_usage chat output": 5, "client_token_usage embeddings input": 2,
		"client_token_usage unknown output": 0,
	}
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			t.Errorf("%s: %v (there: %v), want %v", name, g, ok, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	if n := testutil.ToFloat64(m.genAI.teamTokens.WithLabelValues("t", "m", "input")); n != 10 {
		t.Errorf("the team used %v input tokens, want 10", n)
	}
	if n := testutil.ToFloat64(m.genAI.teamRequests.WithLabelValues("t", usage.OutcomeComplete)); n != 2 {
		t.Errorf("the team has %v complete requests, want 2", n)
	}
}
