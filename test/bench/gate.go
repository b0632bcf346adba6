package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/extauthz"
	"github.com/spokegate/spokegate/extproc"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// gate is admission with everything real behind it but the journal.
type gate struct {
	*extauthz.Server
	flights *flight.Table
	key     string
	stop    context.CancelFunc
}

type noJournal struct{}

func (noJournal) Append(*usagev1.Record) {}

// workersBehind is how many a gate picks from.
const workersBehind = 8

func newGate() (*gate, error) {
	secret, hash := identity.NewKey()
	set, err := policy.Parse("bench", fmt.Appendf(nil, policyText, hash))
	if err != nil {
		return nil, err
	}
	snapshot, err := policy.Compile(set, time.Now())
	if err != nil {
		return nil, err
	}
	current := &policy.Current{}
	current.Store(snapshot)
	minter, err := identity.NewMinter("bench")
	if err != nil {
		return nil, err
	}
	workers := fleet.New()
	for i := range workersBehind {
		w := fleet.Worker{Name: fmt.Sprint("w", i), Endpoint: "bench", Addr: fmt.Sprintf("10.0.0.%d:8000", i+1), State: fleet.Ready}
		if _, err := workers.Join(w); err != nil {
			return nil, err
		}
	}
	workers.Acked(map[string]uint64{"bench": workers.View().Version})
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	picker := epp.New(epp.Config{Fleet: workers, Policy: current, Registerer: reg})
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = picker.Run(ctx) }()
	limiter := limits.NewMemory(limits.MemoryConfig{})
	g := &gate{key: secret, stop: stop, flights: flight.New(flight.Config{Limiter: limiter, Journal: noJournal{}, Registerer: reg, Log: log})}
	g.Server = extauthz.New(extauthz.Config{Policy: current, Limiter: limiter, Flights: g.flights, Minter: minter, Picker: picker,
		BodyLimit: 32 << 20, Now: time.Now, Registerer: reg, Log: log})
	return g, nil
}

// end is what meter and access log tell of a request that went well.
func (g *gate) end(id string) {
	now := time.Now()
	g.flights.End(id, flight.Facts{Metered: &flight.Metered{Status: 200, SawEnd: true, At: now}})
	g.flights.End(id, flight.Facts{Logged: &flight.Logged{Status: 200, Attempts: 1, At: now}})
}

// check reads a request as Envoy sends it, admits it, and ends its flight.
func check(size string, length int) (micro, error) {
	g, err := newGate()
	if err != nil {
		return micro{}, err
	}
	bodies, ids, i := requests(g.key, length, false), serials(1<<17), 0
	asked := make([]wire, len(bodies))
	for i, b := range bodies {
		if asked[i], err = newWire(g.key, ids[0], b.body); err != nil {
			return micro{}, err
		}
	}
	m := micro{name: "extauthz.check_" + size, unit: "µs", times: inMicros, note: "bare copy and xxh3 of the body", against: touched(bodies[0].body), done: g.stop}
	m.ours = func() error {
		id, req := ids[i%len(ids)], extauthz.Request{}
		frames := asked[i%different].named(id)
		i++
		if err := req.FromWire(frames); err != nil {
			return err
		}
		defer req.Free()
		resp, err := g.Check(context.Background(), &req)
		if err != nil || resp.GetOkResponse() == nil {
			return fmt.Errorf("not admitted: %v %w", resp, err)
		}
		g.end(id)
		return nil
	}
	for range 1000 { // until the picker knows its workers
		if err = m.ours(); err == nil {
			return m, nil
		}
		time.Sleep(time.Millisecond)
	}
	return m, err
}

// wire is a CheckRequest in frames of HTTP/2, and where its request id stands.
type wire struct {
	frames mem.BufferSlice
	id     []byte
}

func newWire(key, id string, body []byte) (wire, error) {
	http := &authv3.AttributeContext_HttpRequest{Method: "POST", Path: "/v1/chat/completions", Host: "bench", RawBody: body,
		Headers: map[string]string{"authorization": "Bearer " + key, "content-type": "application/json", "content-length": fmt.Sprint(len(body)),
			":method": "POST", ":path": "/v1/chat/completions", ":authority": "bench", "user-agent": "bench", "x-forwarded-proto": "http", "x-request-id": id}}
	b, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: http}}})
	at := bytes.Index(b, []byte(id))
	if err != nil || at < 0 {
		return wire{}, fmt.Errorf("no request id in the message: %w", err)
	}
	w := wire{id: b[at : at+len(id)]}
	for frame := range slices.Chunk(b, 16<<10) {
		w.frames = append(w.frames, mem.SliceBuffer(frame))
	}
	return w, nil
}

// named gives the request another id of the same length.
func (w wire) named(id string) mem.BufferSlice {
	copy(w.id, id)
	return w.frames
}

// meterChunks of one stream.
const meterChunks = 200

// meterChunk meters a stream of 200 chunks, opening and end included, with the messages read from their wire form.
func meterChunk() (micro, error) {
	g, err := newGate()
	if err != nil {
		return micro{}, err
	}
	meter := extproc.NewMeter(g.flights, time.Now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	chunk := event(`{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}`)
	body, err := proto.Marshal(bodyMessage(chunk, false))
	if err != nil {
		return micro{}, err
	}
	ids, i := serials(1<<17), 0
	return micro{name: "extproc.chunk", unit: "µs", times: inMicros, per: meterChunks, note: "protobuf's reading of the same messages", done: g.stop,
		ours: func() error {
			id := ids[i%len(ids)]
			i++
			g.flights.Open(flight.Admission{ID: id, Key: "k", Team: "t", Model: "bench", Endpoint: "bench", Op: openai.Chat, Stream: true, At: time.Now()}, limits.Hold{})
			err := meter.Process(&observed{id: id, body: body})
			g.flights.End(id, flight.Facts{Logged: &flight.Logged{Status: 200, Attempts: 1, At: time.Now()}})
			return err
		},
		against: func() {
			for range meterChunks {
				m := &extprocv3.ProcessingRequest{}
				_ = proto.Unmarshal(body, m)
				runtime.KeepAlive(m)
			}
		}}, nil
}

// observed is Envoy's stream of one response.
type observed struct {
	grpc.ServerStream
	id   string
	body []byte
	at   int
}

func (o *observed) Context() context.Context                 { return context.Background() }
func (o *observed) Send(*extprocv3.ProcessingResponse) error { return nil }
func (o *observed) Recv() (*extprocv3.ProcessingRequest, error) {
	o.at++
	switch {
	case o.at == 1:
		return headerMessage(true, ":path", "/v1/chat/completions", envoy.ContextHeader, "c", "x-request-id", o.id), nil
	case o.at == 2:
		return headerMessage(false, ":status", "200", "content-type", "text/event-stream"), nil
	case o.at <= 2+meterChunks:
		m := &extprocv3.ProcessingRequest{}
		return m, proto.Unmarshal(o.body, m)
	case o.at == 3+meterChunks:
		return bodyMessage("data: [DONE]\n\n", true), nil
	}
	return nil, io.EOF
}

func bodyMessage(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{ObservabilityMode: true, Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

func headerMessage(request bool, pairs ...string) *extprocv3.ProcessingRequest {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	m := &extprocv3.ProcessingRequest{ObservabilityMode: true, Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}}
	if request {
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: h}
	}
	return m
}
