package join

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "join-me"

var public = ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)

// keys are one key that never changes.
func keys(k ed25519.PublicKey) func() ([]identity.DoorKey, <-chan struct{}) {
	return func() ([]identity.DoorKey, <-chan struct{}) {
		return []identity.DoorKey{{ID: "door-1", Public: k}}, nil
	}
}

// start serves s in memory until the test ends.
func start(t *testing.T, s *Server) workerv1.FleetClient {
	t.Helper()
	s.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	lis, g := bufconn.Listen(1<<16), grpc.NewServer()
	workerv1.RegisterFleetServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); g.Stop(); <-served })
	return workerv1.NewFleetClient(conn)
}

func as(t *testing.T, authorization ...string) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	for _, a := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", a)
	}
	return ctx
}

func hello(change func(*workerv1.Hello)) *workerv1.JoinRequest {
	h := &workerv1.Hello{Worker: "w1", Endpoint: "large", Address: "10.0.0.1:8000", Engine: "sim", Epoch: "e1", BlockSize: 16, Blocks: 100}
	if change != nil {
		change(h)
	}
	return &workerv1.JoinRequest{Message: &workerv1.JoinRequest_Hello{Hello: h}}
}

func beat(s workerv1.State) *workerv1.JoinRequest {
	return &workerv1.JoinRequest{Message: &workerv1.JoinRequest_Status{Status: &workerv1.Status{State: s, Reason: "be\ncause"}}}
}

// until waits for a fact about the fleet.
func until(t *testing.T, f *fleet.Fleet, what string, fact func(*fleet.View) bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		changed := f.Changed()
		if fact(f.View()) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("never %s: %+v", what, f.View())
		}
	}
}

func TestOneWorkersLife(t *testing.T) {
	f := fleet.New()
	began := make(chan string, 2)
	c := start(t, &Server{Fleet: f, Token: token, Door: "door-1", Keys: keys(public), Beat: time.Minute,
		Began: func(id, endpoint, addr string) { began <- id + " " + endpoint + " " + addr }})
	s, err := c.Join(as(t, "bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(hello(nil))
	first, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	w := first.GetWelcome()
	if w.Door != "door-1" || len(w.Keys) != 1 || w.Keys[0].Id != "door-1" || string(w.Keys[0].PublicKey) != string(public) || w.BeatMs != 60_000 || !w.Begun {
		t.Fatalf("welcome %v", w)
	}
	got := f.View().Workers[0]
	if got.Addr != "10.0.0.1:8000" || got.State != fleet.Starting || got.BlockSize != 16 || got.Blocks != 100 || got.Epoch != "e1" {
		t.Fatalf("joined as %+v", got)
	}
	s.Send(beat(workerv1.State_STATE_READY))
	until(t, f, "ready", func(v *fleet.View) bool { return v.Workers[0].State == fleet.Ready })
	s.Send(&workerv1.JoinRequest{Message: &workerv1.JoinRequest_Begun{Begun: &workerv1.Begun{Admissions: []string{"a", "b"}}}})
	if a, b := <-began, <-began; a != "a large 10.0.0.1:8000" || b != "b large 10.0.0.1:8000" {
		t.Errorf("began %s, %s", a, b)
	}
	s.Send(beat(workerv1.State_STATE_DRAINING))
	until(t, f, "draining", func(v *fleet.View) bool { return v.Workers[0].State == fleet.Draining })
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Fatalf("goodbye answered with %v", err)
	}
	until(t, f, "gone", func(v *fleet.View) bool { return len(v.Workers) == 0 })
}

func TestRefusals(t *testing.T) {
	ok := "Bearer " + token
	for name, c := range map[string]struct {
		auth  []string
		token string
		first *workerv1.JoinRequest
		want  codes.Code
	}{
		"no token":             {nil, token, hello(nil), codes.Unauthenticated},
		"wrong token":          {[]string{"Bearer join-me!"}, token, hello(nil), codes.Unauthenticated},
		"wrong scheme":         {[]string{"Basic " + token}, token, hello(nil), codes.Unauthenticated},
		"bare token":           {[]string{token}, token, hello(nil), codes.Unauthenticated},
		"two tokens":           {[]string{ok, ok}, token, hello(nil), codes.Unauthenticated},
		"server without token": {[]string{"Bearer "}, "", hello(nil), codes.Unauthenticated},
		"status first":         {[]string{ok}, token, beat(workerv1.State_STATE_READY), codes.InvalidArgument},
		"empty message":        {[]string{ok}, token, &workerv1.JoinRequest{}, codes.InvalidArgument},
		"unknown engine":       {[]string{ok}, token, hello(func(h *workerv1.Hello) { h.Engine = "abacus" }), codes.InvalidArgument},
		"bad address":          {[]string{ok}, token, hello(func(h *workerv1.Hello) { h.Address = "here" }), codes.InvalidArgument},
		"the door's own":       {[]string{ok}, token, hello(func(h *workerv1.Hello) { h.Address = "10.0.0.1:9901" }), codes.InvalidArgument},
		"own, written anew":    {[]string{ok}, token, hello(func(h *workerv1.Hello) { h.Address = "[::ffff:10.0.0.1]:9901" }), codes.InvalidArgument},
		"taken name":           {[]string{ok}, token, hello(func(h *workerv1.Hello) { h.Worker = "w0" }), codes.AlreadyExists},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New()
			if _, err := f.Join(fleet.Worker{Name: "w0", Endpoint: "large", Addr: "10.0.0.9:1"}); err != nil {
				t.Fatal(err)
			}
			s, err := start(t, &Server{Fleet: f, Token: c.token, Beat: time.Minute, Own: []string{"10.0.0.1:9901"}}).Join(as(t, c.auth...))
			if err != nil {
				t.Fatal(err)
			}
			s.Send(c.first)
			if _, err = s.Recv(); status.Code(err) != c.want {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if strings.Contains(err.Error(), token) {
				t.Fatalf("the answer tells the token: %v", err)
			}
			if len(f.View().Workers) != 1 {
				t.Fatalf("a refused worker is in the fleet: %+v", f.View())
			}
		})
	}
}

func TestNonsenseAfterHelloEndsTheWorker(t *testing.T) {
	for name, m := range map[string]*workerv1.JoinRequest{
		"hello again": hello(nil), "unspecified state": beat(0), "unknown state": beat(99), "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New()
			s, err := start(t, &Server{Fleet: f, Token: token, Beat: time.Minute}).Join(as(t, "Bearer "+token))
			if err != nil {
				t.Fatal(err)
			}
			s.Send(hello(nil))
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
			s.Send(m)
			if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
				t.Fatalf("got %v", err)
			}
			until(t, f, "gone", func(v *fleet.View) bool { return len(v.Workers) == 0 })
		})
	}
}

func TestThreeMissedBeatsEndTheWorker(t *testing.T) {
	for name, opening := range map[string]bool{"after hello": true, "before hello": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleet.New()
			s, err := start(t, &Server{Fleet: f, Token: token, Beat: 2 * time.Second}).Join(as(t, "Bearer "+token))
			if err != nil {
				t.Fatal(err)
			}
			if opening {
				s.Send(hello(nil))
				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Recv(); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("got %v", err)
			}
			until(t, f, "gone", func(v *fleet.View) bool { return len(v.Workers) == 0 })
		})
	}
}

func TestABrokenStreamEndsTheWorker(t *testing.T) {
	f := fleet.New()
	ctx, cancel := context.WithCancel(as(t, "Bearer "+token))
	s, err := start(t, &Server{Fleet: f, Token: token, Beat: time.Minute}).Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Send(hello(nil))
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	until(t, f, "gone", func(v *fleet.View) bool { return len(v.Workers) == 0 })
}

// TestNoWorkerIsWhereTheDoorListens: a prompt that went there would come back, and go there again.
func TestNoWorkerIsWhereTheDoorListens(t *testing.T) {
	host := "10.0.0.1"
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			host = n.IP.String()
		}
	}
	for _, c := range []struct {
		own, addr string
		want      bool
	}{
		{"10.0.0.1:9901", "10.0.0.1:9901", true},
		{"10.0.0.1:9901", "[::ffff:10.0.0.1]:9901", true},
		{"10.0.0.1:9901", "10.0.0.1:9902", false},
		{"10.0.0.1:9901", "10.0.0.2:9901", false},
		{"0.0.0.0:8080", "127.0.0.1:8080", true},
		{"0.0.0.0:8080", "127.0.0.1:8081", false},
		{"0.0.0.0:8080", host + ":8080", true},
		{"[::]:8080", host + ":8080", true},
		{":8080", "[::1]:8080", true},
		{"0.0.0.0:8080", "192.0.2.1:8080", false},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"unix:/run/fleet.sock", "127.0.0.1:8080", false},
	} {
		if got := (&Server{Own: []string{c.own}}).isOwn(c.addr); got != c.want {
			t.Errorf("a worker at %s, the door on %s: %v", c.addr, c.own, got)
		}
	}
}
