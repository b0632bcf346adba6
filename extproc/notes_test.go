package extproc

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
)

// noted is an entry of an answer of so many bytes whose last note is this one.
func noted(note string, sent uint64, flags *alsdatav3.ResponseFlags) *alsdatav3.HTTPAccessLogEntry {
	e := entry(200, flags)
	e.Response.ResponseBodyBytes = sent
	e.Request.Path = "/v1/chat/completions?a=b"
	e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		envoy.OwnNamespace: {Fields: map[string]*structpb.Value{envoy.NoteHeader: structpb.NewStringValue(note)}}}}
	return e
}

// TestNotedAnswer: what the last note says is what a meter would have counted, as far as it has passed.
func TestNotedAnswer(t *testing.T) {
	left := &alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}
	cut := &alsdatav3.ResponseFlags{UpstreamConnectionTermination: true}
	for name, c := range map[string]struct {
		note    string
		sent    uint64
		flags   *alsdatav3.ResponseFlags
		outcome string
		tokens  [2]int64 // of the prompt and the completion; -1: unknown
		anomaly string
	}{
		"whole":                       {`{"prompt_tokens":300,"completion_tokens":20,"terminal":true,"bytes":812}`, 812, nil, "complete", [2]int64{300, 20}, ""},
		"whole, and the client left":  {`{"prompt_tokens":300,"terminal":true,"bytes":812}`, 812, left, "complete", [2]int64{300, -1}, ""},
		"the worker broke off":        {`{"prompt_tokens":300,"terminal":true,"bytes":812}`, 500, cut, "upstream_cut", [2]int64{300, -1}, ""},
		"other bytes than were told":  {`{"prompt_tokens":300,"terminal":true,"bytes":813}`, 812, nil, "complete", [2]int64{300, -1}, "meter_cut"},
		"nothing said of it":          {`{"terminal":true,"bytes":812}`, 812, nil, "complete", [2]int64{-1, -1}, ""},
		"no number":                   {`{"prompt_tokens":"300","terminal":true,"bytes":812}`, 812, nil, "complete", [2]int64{-1, -1}, "bad_usage"},
		"the engine's error":          {`{"failed":true,"terminal":true,"bytes":812}`, 812, nil, "upstream_error", [2]int64{-1, -1}, ""},
		"noted by nobody":             {"", 812, nil, "complete", [2]int64{-1, -1}, "unmetered"},
		"a stream":                    {`{"prompt_tokens":7,"completion_tokens":3,"terminal":true}`, 812, nil, "complete", [2]int64{7, 3}, ""},
		"a stream left at its end":    {`{"prompt_tokens":7,"completion_tokens":3,"terminal":true}`, 812, left, "complete", [2]int64{7, 3}, ""},
		"a stream left midway":        {`{"prompt_tokens":7,"events":3}`, 812, left, "client_cut", [2]int64{7, 3}, ""},
		"a stream cut midway":         {`{"prompt_tokens":7,"events":3}`, 812, cut, "upstream_cut", [2]int64{7, 3}, ""},
		"a stream ended by the shim":  {`{"prompt_tokens":7,"events":3,"failed":true,"cut":true}`, 812, nil, "upstream_cut", [2]int64{7, 3}, ""},
		"a stream without an end":     {`{"prompt_tokens":7,"events":3}`, 812, nil, "complete", [2]int64{7, 3}, ""},
		"left before the first note":  {envoy.NoteStream, 30, left, "client_cut", [2]int64{-1, -1}, ""},
		"over, and no note has come":  {envoy.NoteStream, 30, nil, "complete", [2]int64{-1, -1}, "unmetered"},
		"over, and nothing has come":  {envoy.NoteStream, 0, nil, "complete", [2]int64{-1, -1}, ""},
		"a note that cannot be read":  {`prompt_tokens`, 30, nil, "complete", [2]int64{-1, -1}, "bad_usage"},
		"a note with unknown members": {`{"prompt_tokens":7,"new":[{}]}`, 30, nil, "complete", [2]int64{7, -1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Millisecond)
			b.logged(noted(c.note, c.sent, c.flags))
			r := b.next()
			anomaly := ""
			if len(r.Anomalies) == 1 {
				anomaly = r.Anomalies[0]
			}
			tokens := [2]int64{-1, -1}
			for i, n := range []*int64{r.PromptTokens, r.CompletionTokens} {
				if n != nil {
					tokens[i] = *n
				}
			}
			if r.Outcome != c.outcome || tokens != c.tokens || anomaly != c.anomaly || len(r.Anomalies) > 1 || r.GetResponseBytes() != int64(c.sent) {
				t.Errorf("%v", r)
			}
		})
	}
}

// TestCutByEnvoy: a stream that Envoy ended for reasons of its own, without a flag that we know, has not come to its end.
func TestCutByEnvoy(t *testing.T) {
	b := newBench(t, time.Millisecond)
	e := noted(`{"prompt_tokens":7,"events":3}`, 30, nil)
	e.Response.ResponseCodeDetails = "http2.violation.of.messaging.rule"
	b.logged(e)
	if r := b.next(); r.GetCompletionTokens() != 3 || len(r.Anomalies) != 1 || r.Anomalies[0] != "meter_cut" {
		t.Errorf("%v", r)
	}
}

// TestWhileItRuns: an entry of a request that runs ends nothing, and is what is known when Envoy is gone.
func TestWhileItRuns(t *testing.T) {
	b := newBench(t, time.Millisecond)
	e := noted(`{"prompt_tokens":7,"events":3}`, 30, nil)
	e.CommonProperties.AccessLogType = alsdatav3.AccessLogType_DownstreamPeriodic
	e.CommonProperties.TimeToFirstDownstreamTxByte = durationpb.New(time.Second)
	silent := entry(0, nil)
	silent.CommonProperties.AccessLogType = alsdatav3.AccessLogType_DownstreamPeriodic
	b.logged(silent)
	b.logged(e)
	b.logged(silent) // a meter would know, or nobody
	if !b.flights.Live(id) {
		t.Fatal("it is over")
	}
	b.flights.Lose(time.Now().Add(time.Hour), "envoy_gone")
	if r := b.next(); r.Outcome != "upstream_cut" || r.GetPromptTokens() != 7 || r.GetCompletionTokens() != 3 || r.FirstByteAt == nil ||
		r.GetResponseBytes() != 30 || len(r.Anomalies) != 2 || r.Anomalies[1] != "envoy_gone" {
		t.Errorf("%v", r)
	}
}
