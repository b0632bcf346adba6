package main

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/extproc"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// meterChunks of one stream.
const meterChunks = 200

// meterChunk meters a stream of 200 chunks, opening and end included, with the messages read from their wire form.
func meterChunk() (micro, error) {
	g, err := newGate()
	if err != nil {
		return micro{}, err
	}
	meter := extproc.NewMeter(g.flights, time.Now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ids, i := serials(1<<17), 0
	first, err := newHead(ids[0])
	if err != nil {
		return micro{}, err
	}
	body, err := newBody(event(`{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}`), false)
	if err != nil {
		return micro{}, err
	}
	last, err := newBody("data: [DONE]\n\n", true)
	if err != nil {
		return micro{}, err
	}
	return micro{name: "extproc.chunk", unit: "µs", times: inMicros, per: meterChunks, note: "protobuf's reading of the same messages", done: g.stop,
		ours: func() error {
			id := ids[i%len(ids)]
			i++
			g.flights.Open(flight.Admission{ID: id, Key: "k", Team: "t", Model: "bench", Endpoint: "bench", Op: openai.Chat, Stream: true, At: time.Now()}, limits.Hold{})
			err := meter.Process(&observed{first: first.named(id), body: body, last: last})
			g.flights.End(id, flight.Facts{Logged: &flight.Logged{Status: 200, Served: "10.0.0.1:8000", Attempts: 1, At: time.Now()}})
			return err
		},
		against: func() {
			for range meterChunks {
				m := &extprocv3.ProcessingRequest{}
				_ = proto.Unmarshal(body[0].ReadOnlyData(), m)
				runtime.KeepAlive(m)
			}
		}}, nil
}

// observed is Envoy's stream of one response.
type observed struct {
	grpc.ServerStream
	first, body, last mem.BufferSlice
	at                int
}

func (o *observed) Context() context.Context { return context.Background() }

func (o *observed) RecvMsg(m any) error {
	o.at++
	frames := o.body
	switch {
	case o.at == 1:
		frames = o.first
	case o.at == 2+meterChunks:
		frames = o.last
	case o.at > 2+meterChunks:
		return io.EOF
	}
	return m.(wire.Reader).FromWire(frames)
}

// newHead tells the meter whose response begins.
func newHead(id string) (asking, error) { return newAsking(id, headMessage(id)) }

func headMessage(id string) *extprocv3.ProcessingRequest {
	of := map[string]*structpb.Value{}
	for name, value := range map[string]string{envoy.IDAttribute: id, envoy.PathAttribute: "/v1/chat/completions",
		envoy.ClusterAttribute: envoy.ClusterName("bench"), envoy.UpstreamAttribute: "10.0.0.1:8000"} {
		of[name] = structpb.NewStringValue(value)
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":status", RawValue: []byte("200")}, {Key: "content-type", RawValue: []byte(openai.EventStream)}}}
	return &extprocv3.ProcessingRequest{
		ObservabilityMode: true, Attributes: map[string]*structpb.Struct{envoy.AttributesKey: {Fields: of}},
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headers}},
	}
}

func newBody(text string, end bool) (mem.BufferSlice, error) {
	b, err := proto.Marshal(bodyMessage(text, end))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func bodyMessage(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{ObservabilityMode: true, Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}
