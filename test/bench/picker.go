package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// The suites of processes that the bench starts of itself, so that their CPU is theirs alone.
const (
	suitePicker = "picker"
	suitePasses = "pass-through"
)

// pickerRequest is the CPU of a picker for one request of 330 KB in full duplex, beside an ext_proc of the same shape that gives
// every piece back as it came.
func pickerRequest(ctx context.Context, o options) ([]figure, error) {
	dir, err := os.MkdirTemp("", "bench-picker")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	used := map[string][]float64{}
	sides := map[string]*gateway{}
	for _, suite := range []string{suitePasses, suitePicker} {
		p, err := start(dir, suite, self, "-suite", suite, "-dir", dir)
		if err != nil {
			return nil, err
		}
		defer p.stop()
		g, err := newGateway(ctx, p, filepath.Join(dir, suite+".sock"))
		if err != nil {
			return nil, errors.Join(err, p.died())
		}
		defer g.conn.Close()
		sides[suite] = g
	}
	for round := range o.rounds + 1 {
		for suite, g := range sides {
			const times = 150
			before := g.process.cpu()
			for range times {
				if err := g.request(ctx); err != nil {
					return nil, errors.Join(fmt.Errorf("%s: %w", suite, err), g.process.died())
				}
			}
			if round > 0 { // the first one warms up
				used[suite] = append(used[suite], ms(g.process.cpu()-before)/times)
			}
		}
	}
	f := compared("epp.request_330k", "ms", "an ext_proc that passes all through; CPU of the process alone", used[suitePicker], used[suitePasses])
	progress("%s: %s ms of CPU, passing through %s", f.Name, short(f.Value), short(*f.Against))
	return []figure{f}, nil
}

// gateway asks as an Envoy does.
type gateway struct {
	process *process
	conn    *grpc.ClientConn
	bodies  [][]byte
	next    int
}

func newGateway(ctx context.Context, p *process, socket string) (*gateway, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	g := &gateway{process: p, conn: conn}
	for _, r := range requests("", 330<<10, false) {
		g.bodies = append(g.bodies, r.body)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for { // until it listens
		if err = g.request(ctx); err == nil {
			return g, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			conn.Close()
			return nil, err
		}
	}
}

// pieces of a body are as large as Envoy's buffers.
const pieceSize = 64 << 10

// request sends one and reads all that comes back, up to the end of its body.
func (g *gateway) request(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(g.conn).Process(ctx)
	if err != nil {
		return err
	}
	body := g.bodies[g.next%len(g.bodies)]
	g.next++
	if err := stream.Send(pickHead()); err != nil {
		return err
	}
	for rest := body; len(rest) > 0; {
		n := min(pieceSize, len(rest))
		m := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: rest[:n], EndOfStream: n == len(rest)}}}
		if err := stream.Send(m); err != nil {
			return err
		}
		rest = rest[n:]
	}
	var back bytes.Buffer
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("%d of %d bytes came back: %w", back.Len(), len(body), err)
		}
		if m.GetImmediateResponse() != nil {
			return fmt.Errorf("refused: %s", m.GetImmediateResponse().GetBody())
		}
		piece := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		back.Write(piece.GetBody())
		if piece.GetEndOfStream() {
			break
		}
	}
	if !bytes.Equal(back.Bytes(), body) {
		return errors.New("the body came back changed")
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream did not end: %w", err)
	}
	return nil
}

func pickHead() *extprocv3.ProcessingRequest {
	h := func(k, v string) *corev3.HeaderValue { return &corev3.HeaderValue{Key: k, RawValue: []byte(v)} }
	return &extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: procv3.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: procv3.ProcessingMode_FULL_DUPLEX_STREAMED},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			h(":method", "POST"), h(":path", "/v1/chat/completions"), h(":authority", "bench"), h("content-type", "application/json"), h("x-request-id", "5b1f6c0e-8f7e-4b53-9d2a-000000000000"),
		}}}},
	}
}

// serve is one of the two processes.
func serve(ctx context.Context, o options) error {
	lis, err := net.Listen("unix", filepath.Join(o.dir, o.suite+".sock"))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	if o.suite == suitePasses {
		extprocv3.RegisterExternalProcessorServer(s, passes{})
	} else {
		p, err := eightWorkers()
		if err != nil {
			return err
		}
		extprocv3.RegisterExternalProcessorServer(s, &epp.Server{Picker: p, Endpoint: "bench", BodyLimit: 1 << 20, Now: time.Now})
	}
	context.AfterFunc(ctx, s.Stop)
	return s.Serve(lis)
}

func eightWorkers() (*epp.Picker, error) {
	f := fleet.New()
	for i := range 8 {
		if _, err := f.Join(fleet.Worker{Name: fmt.Sprint("w", i), Endpoint: "bench", Addr: fmt.Sprintf("10.0.0.%d:8000", i+1), Epoch: "1", State: fleet.Ready}); err != nil {
			return nil, err
		}
	}
	f.Acked(map[string]uint64{"bench": f.View().Version})
	_, hash := identity.NewKey()
	set, err := policy.Parse("bench", []byte("models: [{name: bench, endpoint: bench}]\nendpoints: [{name: bench}]\nteams: [{name: t, models: [\"*\"]}]\nkeys: [{id: k, team: t, sha256: \""+hash.String()+"\"}]\n"))
	if err != nil {
		return nil, err
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		return nil, err
	}
	current := &policy.Current{}
	current.Store(snap)
	return epp.New(epp.Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()}), nil
}

// passes gives every piece back.
type passes struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (passes) Process(rpc extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
		if b := m.GetRequestBody(); b != nil {
			r.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
				BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
					Body: b.Body, EndOfStream: b.EndOfStream}}}}}}
		}
		if err := rpc.Send(r); err != nil {
			return err
		}
	}
}
