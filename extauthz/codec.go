package extauthz

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Request is one CheckRequest of Envoy's as it came over the wire. Protobuf's own reading copies the body and every header;
// this one takes what is asked for, and leaves the body where it is.
type Request struct {
	question
	wire mem.Buffer // what the body is a slice of
}

// Free gives the memory back that the body lies in. Nothing of the body may be kept beyond it.
func (r *Request) Free() {
	if r.wire != nil {
		r.wire.Free()
	}
	*r = Request{}
}

// Codec reads each Request by its wire form, and everything else as gRPC always does. A gRPC server on which Register is
// called must have it (grpc.ForceServerCodecV2); one without it refuses every check.
type Codec struct{}

// Name is that of protobuf, which it is.
func (Codec) Name() string { return protocodec.Name }

// Marshal writes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(protocodec.Name).Marshal(v)
}

// Unmarshal reads a message. A Request must be freed.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ours := v.(*Request)
	if !ours {
		return encoding.GetCodecV2(protocodec.Name).Unmarshal(data, v)
	}
	wire := data.MaterializeToBuffer(&buffers)
	q, err := parse(wire.ReadOnlyData())
	if err != nil {
		wire.Free()
		return fmt.Errorf("not a CheckRequest: %w", err)
	}
	r.question, r.wire = q, wire
	return nil
}

// pool lends bytes by powers of two. gRPC's own clears each buffer whole, 1 MiB for a request of 330 KB.
type pool [bits.UintSize]sync.Pool

var buffers pool

// Get lends n bytes, in which anything may stand.
func (p *pool) Get(n int) *[]byte {
	class := bits.Len(uint(max(n, 1) - 1)) // 1<<class bytes are enough
	if b, ok := p[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// Put takes back what Get lent.
func (p *pool) Put(b *[]byte) { p[bits.Len(uint(cap(*b))-1)].Put(b) }

// Register adds the service to a gRPC server that has Codec.
func (s *Server) Register(g *grpc.Server) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: authv3.Authorization_ServiceDesc.ServiceName,
		HandlerType: (*checker)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Check", Handler: handle}},
		Metadata:    authv3.Authorization_ServiceDesc.Metadata,
	}, s)
}

type checker interface {
	Check(context.Context, *Request) (*authv3.CheckResponse, error)
}

// handle is what protobuf's generator would write for a method that takes a Request, and frees it when the answer is made.
func handle(srv any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	req := &Request{}
	defer req.Free()
	if err := read(req); err != nil {
		return nil, err
	}
	check := func(ctx context.Context, req any) (any, error) {
		return srv.(checker).Check(ctx, req.(*Request))
	}
	if interceptor == nil {
		return check(ctx, req)
	}
	return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: authv3.Authorization_Check_FullMethodName}, check)
}
