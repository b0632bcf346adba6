package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
)

// tap is a worker of the tests' own: it joins the door as a shim does, and keeps what Envoy sends to a worker.
type tap struct {
	name, endpoint, addr string

	server   *http.Server
	conn     *grpc.ClientConn
	cancel   context.CancelFunc
	done     chan struct{} // the stream has ended
	welcomed chan struct{} // the door has let it in
	once     sync.Once
	verifier *identity.Verifier
	answer   http.HandlerFunc // nil: plainAnswer

	mu    sync.Mutex
	heard []caught
}

// caught is a request as a shim receives it.
type caught struct {
	heard
	context identity.Context
	invalid error // of the context
}

// joinTap joins the door of an installation.
func joinTap(u *up, name, endpoint string, answer http.HandlerFunc) (*tap, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &tap{name: name, endpoint: endpoint, addr: lis.Addr().String(), done: make(chan struct{}),
		verifier: identity.NewVerifier(endpoint), answer: answer}
	w.server = &http.Server{Handler: w}
	go func() { _ = w.server.Serve(lis) }()
	socket := filepath.Join(u.dir, "run", "fleet.sock")
	often := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second}
	w.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(often))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.welcomed = make(chan struct{})
	go w.keepJoined(ctx, filepath.Join(u.dir, "run", "join-token"))
	select {
	case <-w.welcomed:
		u.closer = append(u.closer, w.leave)
		return w, nil
	case <-time.After(startPatience):
		w.leave()
		return nil, errors.New("the tap cannot join the door")
	}
}

// keepJoined joins until it is let in, and reports until ctx is done.
func (w *tap) keepJoined(ctx context.Context, tokenFile string) {
	defer close(w.done)
	for ctx.Err() == nil {
		token, _ := os.ReadFile(tokenFile)
		_ = w.join(ctx, strings.TrimSpace(string(token)))
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *tap) join(ctx context.Context, token string) error {
	s, err := workerv1.NewFleetClient(w.conn).Join(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	if err != nil {
		return err
	}
	hello := &workerv1.Hello{Worker: w.name, Endpoint: w.endpoint, Address: w.addr, Engine: "attached", Epoch: "1", Macs: true}
	// Where the door has closed already, Send says only that: Recv tells why.
	if err := s.Send(&workerv1.JoinRequest{Message: &workerv1.JoinRequest_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	first, err := s.Recv()
	if err != nil {
		return err
	}
	door := first.GetWelcome()
	for _, k := range door.GetKeys() {
		w.verifier.SetKey(k.GetId(), k.GetPublicKey())
	}
	if m := door.GetMac(); m != nil {
		secret, err := identity.SecretOf(m.Id, m.Secret)
		if err != nil {
			return err
		}
		w.verifier.SetSecret(secret)
	}
	ready := &workerv1.JoinRequest{Message: &workerv1.JoinRequest_Status{Status: &workerv1.Status{State: workerv1.State_STATE_READY}}}
	for {
		if err := s.Send(ready); err != nil {
			return err
		}
		w.once.Do(func() { close(w.welcomed) })
		select {
		case <-ctx.Done():
			return s.CloseSend()
		case <-time.After(time.Duration(door.GetBeatMs()) * time.Millisecond / 2):
		}
	}
}

// leave ends the worker and waits for it. The installation does it when it stops, at the latest.
func (w *tap) leave() {
	w.cancel()
	<-w.done
	_ = w.conn.Close()
	_ = w.server.Close()
}

// ServeHTTP keeps the request and answers it.
func (w *tap) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c, invalid := w.verifier.Verify(r.Header.Get("X-Spokegate-Context"), time.Now())
	w.mu.Lock()
	w.heard = append(w.heard, caught{heard{r.Method, r.URL.RequestURI(), r.Header.Clone(), body}, c, invalid})
	w.mu.Unlock()
	if w.answer != nil {
		w.answer(rw, r)
		return
	}
	script{}.playJSON(rw, r)
}

// got is what was received with this value of caseHeader.
func (w *tap) got(name string) []caught {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []caught
	for _, h := range w.heard {
		if h.header.Get(caseHeader) == name {
			out = append(out, h)
		}
	}
	return out
}

// silent fails if anything was sent to the worker outside a case.
func (w *tap) silent(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if !strings.HasPrefix(h.header.Get(caseHeader), casePrefix) {
			t.Errorf("the worker received what no test sent: %+v", h)
		}
	}
}

// judge says what a shim should never receive.
func (h caught) judge(admission string) error {
	var errs []error
	if h.invalid != nil {
		errs = append(errs, h.invalid)
	}
	if h.context.Admission != admission || h.header.Get("X-Request-Id") != admission {
		errs = append(errs, fmt.Errorf("the context is for %q and x-request-id is %q; the client was told %q",
			h.context.Admission, h.header.Get("X-Request-Id"), admission))
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization", "X-Gateway-Destination-Endpoint"} {
		if h.header.Values(name) != nil {
			errs = append(errs, fmt.Errorf("the worker received %s", name))
		}
	}
	if len(h.header.Values("X-Spokegate-Context")) != 1 {
		errs = append(errs, fmt.Errorf("contexts: %v", h.header.Values("X-Spokegate-Context")))
	}
	return errors.Join(errs...)
}

// once wants exactly one request of a case.
func once[T any](t testing.TB, where string, got []T) T {
	t.Helper()
	if len(got) != 1 {
		t.Fatalf("%s: want one request, got %d: %+v", where, len(got), got)
	}
	return got[0]
}
