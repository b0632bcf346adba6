package extproc

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// byProtobuf is the oracle: the same view of a message, by way of protobuf.
func byProtobuf(b []byte) (m message, err error) {
	var r extprocv3.ProcessingRequest
	if err := proto.Unmarshal(b, &r); err != nil {
		return m, err
	}
	m.observed = r.GetObservabilityMode()
	fields := r.GetAttributes()[envoy.AttributesKey].GetFields()
	text := func(name string) []byte { return []byte(fields[name].GetStringValue()) }
	m.of = attributes{text(envoy.IDAttribute), text(envoy.PathAttribute), text(envoy.ClusterAttribute), text(envoy.UpstreamAttribute)}
	switch v := r.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		m.about = requestHeaders
	case *extprocv3.ProcessingRequest_RequestBody:
		m.about = requestBody
	case *extprocv3.ProcessingRequest_RequestTrailers:
		m.about = requestTrailers
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		m.about = responseTrailers
	case *extprocv3.ProcessingRequest_ResponseBody:
		m.about, m.body, m.end = responseBody, v.ResponseBody.GetBody(), v.ResponseBody.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		m.about, m.end = responseHeaders, v.ResponseHeaders.GetEndOfStream()
		for _, h := range v.ResponseHeaders.GetHeaders().GetHeaders() {
			switch value := envoy.HeaderValue(h); h.GetKey() {
			case ":status":
				m.status = []byte(value)
			case "content-type":
				m.sse = value == openai.EventStream
			case envoy.RefusedHeader:
				m.refused = true
			}
		}
	}
	return m, nil
}

// FuzzMessage: every message that protobuf can read is read here, and as the same. What is not looked into here may be
// malformed where protobuf would mind.
func FuzzMessage(f *testing.F) {
	for _, m := range []*extprocv3.ProcessingRequest{
		{},
		admitted(":status", "200", "content-type", "text/event-stream", envoy.RefusedHeader, "draining", "other", "x"),
		body(sse, false), body("", true),
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{}, ObservabilityMode: true},
		{Attributes: map[string]*structpb.Struct{"a": {}, envoy.AttributesKey: {Fields: map[string]*structpb.Value{
			envoy.IDAttribute: structpb.NewNumberValue(1), envoy.PathAttribute: structpb.NewListValue(&structpb.ListValue{}), "x": structpb.NewNullValue(),
			envoy.ClusterAttribute: structpb.NewBoolValue(true), envoy.UpstreamAttribute: structpb.NewStructValue(&structpb.Struct{})}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(slices.Concat(b, b))
	}
	two, _ := proto.Marshal(body("one", true))
	other, _ := proto.Marshal(admitted(":status", "500"))
	f.Add(slices.Concat(two, other, two))
	f.Fuzz(func(t *testing.T, b []byte) {
		want, err := byProtobuf(b)
		if err != nil {
			return
		}
		got, err := parse(b)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(message{}, attributes{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-protobuf +ours):\n%s", diff)
		}
	})
}

// A message that came in several frames is no other.
func TestMessageInPieces(t *testing.T) {
	text := strings.Repeat(sse, 1000)
	messages := [][]byte{marshal(t, admitted(":status", "200", "content-type", "text/event-stream")), marshal(t, body(text, false)), marshal(t, body("", true))}
	want := report(t, messages, 1<<30)
	for _, size := range []int{1, 7, 100, 16 << 10} {
		if diff := cmp.Diff(want, report(t, messages, size), cmpopts.IgnoreFields(flight.Metered{}, "At")); diff != "" {
			t.Errorf("in pieces of %d (-whole +pieces):\n%s", size, diff)
		}
	}
	if want.ResponseBytes != int64(len(text)) || !want.SawEnd || want.Report.Usage.Prompt == nil {
		t.Errorf("%+v", want)
	}
}

// report is what a watch says at the end of messages that come in frames of size bytes.
func report(t *testing.T, messages [][]byte, size int) flight.Metered {
	w := &watch{flights: flight.New(flight.Config{}), now: time.Now}
	for _, m := range messages {
		var frames mem.BufferSlice
		for c := range slices.Chunk(m, size) {
			frames = append(frames, mem.SliceBuffer(c))
		}
		if err := w.FromWire(frames); err != nil {
			t.Fatal(err)
		}
	}
	w.facts.Report = w.meter.Close()
	return w.facts
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// scripted is Envoy's side of a stream, as far as the meter reads it.
type scripted struct {
	grpc.ServerStream
	messages [][]byte
	frame    mem.BufferSlice
}

func (s *scripted) Context() context.Context { return context.Background() }

func (s *scripted) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	s.frame = append(s.frame[:0], mem.SliceBuffer(s.messages[0]))
	s.messages = s.messages[1:]
	return m.(wire.Reader).FromWire(s.frame)
}

const token = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8}}\n\n"

// BenchmarkChunk is a piece of a stream: read, and counted.
func BenchmarkChunk(b *testing.B) {
	chunk := body(token, false)
	chunk.ObservabilityMode = true
	raw := marshal(b, chunk)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if m, err := parse(raw); err != nil || len(m.body) != len(token) {
				b.Fatal(err)
			}
		}
	})
	b.Run("read by protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var r extprocv3.ProcessingRequest
			if err := proto.Unmarshal(raw, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("metered", func(b *testing.B) {

		flights := flight.New(flight.Config{Journal: make(journal, 1<<20), Limiter: limits.NewMemory(limits.MemoryConfig{})})
		m := NewMeter(flights, time.Now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		head := admitted(":status", "200", "content-type", "text/event-stream")
		head.ObservabilityMode = true
		s := &scripted{messages: slices.Concat([][]byte{marshal(b, head)}, slices.Repeat([][]byte{raw}, b.N))}
		b.ReportAllocs()
		b.ResetTimer()
		if err := m.Process(s); len(s.messages) != 0 || err != nil {
			b.Fatal(err)
		}
	})
}
