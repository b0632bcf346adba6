package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// waiting is a stream that lasts until its end is noticed.
type waiting struct {
	healthv1.UnimplementedHealthServer
	began, ended chan struct{}
}

func (w *waiting) Watch(_ *healthv1.HealthCheckRequest, s healthv1.Health_WatchServer) error {
	close(w.began)
	<-s.Context().Done()
	close(w.ended)
	return nil
}

// TestAGatewayThatIsGoneWithoutAWord holds nothing for long: its connection stays open, and nothing comes over it any more.
func TestAGatewayThatIsGoneWithoutAWord(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, w := grpc.NewServer(missed(time.Second, time.Second)), &waiting{began: make(chan struct{}), ended: make(chan struct{})}
	healthv1.RegisterHealthServer(g, w)
	go func() { _ = g.Serve(lis) }()
	t.Cleanup(g.Stop)
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close() })
	wire, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wire.Close() })
	go func() { _, _ = io.Copy(wire, far) }()
	go func() { // to the gateway, until it is gone
		for piece := make([]byte, 4096); ; {
			n, err := wire.Read(piece)
			select {
			case <-w.began:
				return
			default:
			}
			if _, werr := far.Write(piece[:n]); err != nil || werr != nil {
				return
			}
		}
	}()
	conn, err := grpc.NewClient("passthrough:///picker", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return near, nil }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, is := range []chan struct{}{w.began, w.ended} {
		select {
		case <-is:
		case <-time.After(3 * time.Minute):
			t.Fatal("the stream of a gateway that is gone goes on")
		}
	}
}
