package envoy

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spokegate/spokegate/fleet"
)

// What the access log has gathered while the door process hung comes in one message, and is taken, however large bodies may be.
func TestRoomForGatheredLogs(t *testing.T) {
	d := Door{BodyLimit: leastBody}
	for name, options := range map[string][]grpc.ServerOption{
		"of its own Envoy": NewServer(d, fleet.New(), nil, nil).ServerOptions(),
		"of a gateway's":   NewForeign(d).ServerOptions(),
	} {
		t.Run(name, func(t *testing.T) { takesLarge(t, options) })
	}
}

func takesLarge(t *testing.T, options []grpc.ServerOption) {
	const size = 40 << 20
	got := make(chan int, 1)
	g := grpc.NewServer(append(options, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		m := &wrapperspb.BytesValue{}
		err := s.RecvMsg(m)
		got <- len(m.Value)
		return err
	}))...)
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	defer func() { g.Stop(); <-served }()
	conn, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/logs/Stream")
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.SendMsg(wrapperspb.Bytes(make([]byte, size))) // fails where it is refused
	if n := <-got; n != size {
		t.Errorf("%d bytes were taken of %d", n, size)
	}
}
