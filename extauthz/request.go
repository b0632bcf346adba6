package extauthz

import (
	"context"
	"fmt"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/wire"
)

// Request is one CheckRequest of Envoy's as it came over the wire. Protobuf's own reading copies the body and every header;
// this one takes what is asked for, and leaves the body where it is.
type Request struct {
	question
	message mem.Buffer // what the body is a slice of
}

// Free gives the memory back that the body lies in. Nothing of the body may be kept beyond it.
func (r *Request) Free() {
	if r.message != nil {
		r.message.Free()
	}
	*r = Request{}
}

// FromWire reads a CheckRequest. Where it lies in several pieces, they are put together in memory that is used again; a
// single one stays where it is.
func (r *Request) FromWire(data mem.BufferSlice) error {
	r.Free()
	message := data.MaterializeToBuffer(&wire.Buffers)
	q, err := parse(message.ReadOnlyData())
	if err != nil {
		message.Free()
		return fmt.Errorf("not a CheckRequest: %w", err)
	}
	r.question, r.message = q, message
	return nil
}

// Check answers one request.
func (s *Server) Check(ctx context.Context, req *Request) (*authv3.CheckResponse, error) {
	if s.Tracer != nil {
		ctx = envoy.Traced(ctx)
	}
	a, err := s.decide(ctx, &req.question, headOnly(ctx))
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return a.response(), nil
}

func headOnly(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	v := md.Get(envoy.CheckKey)
	return len(v) == 1 && v[0] == envoy.CheckHead
}

// Register adds the service to a gRPC server, which must have wire.Option: without it, every check is refused.
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
