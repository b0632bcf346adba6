package extauthz

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/wire"
)

// echo is a picker that answers with what the body ends with, read as late as it can.
type echo struct{}

func (echo) Pick(_ context.Context, _ time.Time, _ string, _ router.Ask, req *openai.Request, body []byte) (router.Choice, error) {
	time.Sleep(time.Millisecond) // others use their memory meanwhile
	v, _ := req.Get("user")
	return router.Choice{Addrs: []string{strings.Trim(string(body[v.Start:v.End]), `"`)}}, nil
}

// serve puts the gate behind a real gRPC server, and returns a connection to it.
func (g *gate) serve(t *testing.T, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	g.Register(server)
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

func (g *gate) request(id, body string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
		Method: "POST", Path: "/v1/chat/completions", RawBody: []byte(body),
		Headers: map[string]string{"x-request-id": id, "authorization": "Bearer " + g.key, "content-type": "application/json", envoy.ClientRequestIDHeader: "of " + id},
	}}}}
}

// TestBodiesAreNotMixedUp sends bodies of all sizes at the same time, in memory that each request has from another.
func TestBodiesAreNotMixedUp(t *testing.T) {
	g := newGate(t)
	g.Picker = echo{}
	g.key = g.boundless
	client := authv3.NewAuthorizationClient(g.serve(t, wire.Option()))
	var all sync.WaitGroup
	for who := range 16 {
		all.Go(func() {
			for n := range 20 {
				id := fmt.Sprintf("%d-%d", who, n)
				body := fmt.Sprintf(`{"model":"cheap","prompt":%q,"user":%q}`, strings.Repeat("x", (n%7)*(n%7)*5000), id)
				resp, err := client.Check(t.Context(), g.request(id, body))
				if err != nil {
					t.Error(err)
					return
				}
				if got := resp.GetDynamicMetadata().GetFields()[envoy.DestinationKey].GetStringValue(); got != id {
					t.Errorf("%s was picked for as %q: %v", id, got, resp)
				}
			}
		})
	}
	all.Wait()
	if r := *g.records; len(r) != 16*20 {
		t.Errorf("%d records", len(r))
	}
	for _, r := range *g.records {
		if r.GetClientRequestId() != "of "+r.GetAdmission() {
			t.Errorf("record of %q says %q", r.GetAdmission(), r.GetClientRequestId())
		}
	}
}

// TestServerWithoutWireOption: whoever forgets it admits nothing.
func TestServerWithoutWireOption(t *testing.T) {
	g := newGate(t)
	client := authv3.NewAuthorizationClient(g.serve(t))
	if resp, err := client.Check(t.Context(), g.request("a", `{"model":"cheap"}`)); status.Code(err) != codes.Internal {
		t.Errorf("answered %v, %v", resp, err)
	}
}

func TestInterceptorsAndOtherServices(t *testing.T) {
	g := newGate(t)
	var seen atomic.Pointer[string]
	conn := g.serve(t, wire.Option(), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			seen.Store(new(fmt.Sprintf("%T %s", req, info.FullMethod)))
			return next(ctx, req)
		}))
	if resp, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), g.request("a", `{"model":"cheap"}`)); err != nil || resp.GetOkResponse() == nil {
		t.Fatal(resp, err)
	}
	if got := *seen.Load(); got != "*extauthz.Request /envoy.service.auth.v3.Authorization/Check" {
		t.Errorf("the interceptor saw %s", got)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("another service: %v", err)
	}
}

func TestBrokenMessageIsRefused(t *testing.T) {
	g := newGate(t)
	conn := g.serve(t, wire.Option())
	var resp authv3.CheckResponse
	err := conn.Invoke(t.Context(), authv3.Authorization_Check_FullMethodName, []byte{0xff}, &resp, grpc.ForceCodecV2(asBytes{encoding.GetCodecV2("proto")}))
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "not a CheckRequest") {
		t.Errorf("answered %v, %v", &resp, err)
	}
}

// asBytes sends bytes as they are.
type asBytes struct{ encoding.CodecV2 }

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// BenchmarkReading compares with protobuf's own reading, from frames of HTTP/2 to a question.
func BenchmarkReading(b *testing.B) {
	for _, size := range []int{1 << 10, 330 << 10} {
		message := example(b, make([]byte, size))
		var frames mem.BufferSlice
		for rest := message; len(rest) > 0; rest = rest[min(len(rest), 16<<10):] {
			frames = append(frames, mem.SliceBuffer(rest[:min(len(rest), 16<<10)]))
		}
		b.Run(fmt.Sprintf("ours/%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var r Request
				if err := r.FromWire(frames); err != nil {
					b.Fatal(err)
				}
				r.Free()
			}
		})
		b.Run(fmt.Sprintf("protobuf/%dKiB", size>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buffer := frames.MaterializeToBuffer(mem.DefaultBufferPool())
				var r authv3.CheckRequest
				if err := proto.Unmarshal(buffer.ReadOnlyData(), &r); err != nil {
					b.Fatal(err)
				}
				buffer.Free()
				_ = questionOf(&r)
			}
		})
	}
}

// TestLabelsReachTheRecord: the policy promises it.
func TestLabelsReachTheRecord(t *testing.T) { both(t, testLabelsReachTheRecord) }

func testLabelsReachTheRecord(t *testing.T) {
	g := newGate(t)
	if _, err := g.ask(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(*g.records) != 1 || (*g.records)[0].GetLabels()["cost-center"] != "4711" {
		t.Errorf("%v", *g.records)
	}
}
