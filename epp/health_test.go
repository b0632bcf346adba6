package epp

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

const protocolService = "envoy.service.ext_proc.v3.ExternalProcessor"

// asked gives the services that serve, over gRPC.
func asked(t *testing.T, h *Health) string {
	t.Helper()
	client := healthClient(t, h)
	var serving []string
	for _, service := range []string{"liveness", "readiness", protocolService, ""} {
		r, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			serving = append(serving, service)
		}
	}
	return strings.Join(serving, " ")
}

func healthClient(t *testing.T, h *Health) healthv1.HealthClient {
	lis := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	h.Register(g)
	served := make(chan error)
	go func() { served <- g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-served
	})
	return healthv1.NewHealthClient(conn)
}

func TestHealth(t *testing.T) {
	h := NewHealth()
	for _, c := range []struct {
		ready bool
		want  string
	}{{false, "liveness"}, {true, "liveness readiness " + protocolService + " "}, {false, "liveness"}} {
		h.SetReady(c.ready)
		if got := asked(t, h); got != c.want {
			t.Errorf("ready %v: %q serve", c.ready, got)
		}
	}
	if _, err := healthClient(t, h).Check(t.Context(), &healthv1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that is not ours: %v", err)
	}
}

// TestHealthIsWatched: who watches is told of a change.
func TestHealthIsWatched(t *testing.T) {
	h := NewHealth()
	w, err := healthClient(t, h).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: Readiness})
	if err != nil {
		t.Fatal(err)
	}
	var got []healthv1.HealthCheckResponse_ServingStatus
	for _, ready := range []bool{true, false, true} {
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.GetStatus())
		h.SetReady(ready)
	}
	if want := []healthv1.HealthCheckResponse_ServingStatus{2, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}
