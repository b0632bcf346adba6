package worker

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/sim"
)

// TestMain is also the child process of the tests that run an engine, and the shim of the one that is killed.
func TestMain(m *testing.M) {
	switch os.Getenv("WORKER_TEST_ROLE") {
	case "sim":
		childSim()
	case "shim":
		childShim()
	case "guard":
		childGuard()
	case "engine":
		childEngine()
	case "launch-shim":
		childLaunchShim()
	default:
		goleak.VerifyTestMain(m)
	}
}

func childSim() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	socket := ""
	for i, arg := range os.Args {
		if arg == "-listen" {
			socket = os.Args[i+1]
		}
	}
	if err := sim.Run(ctx, sim.Config{Listen: socket}); err != nil {
		slog.Error("sim", "error", err)
		os.Exit(1)
	}
}

const patience = 2 * time.Minute

// eventually waits for a fact.
func eventually(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		if fact() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// fakeEngine is ready from the start; what it answers is up to its server.
type fakeEngine struct {
	base      *url.URL
	transport *http.Transport
	lives     chan Life // tells more lives
	ran       chan struct{}
}

func newFakeEngine(t *testing.T, base string) *fakeEngine {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeEngine{base: u, transport: newTransport(nil), lives: make(chan Life), ran: make(chan struct{})}
}

func (e *fakeEngine) Kind() string                 { return "attached" }
func (e *fakeEngine) Base() *url.URL               { return e.base }
func (e *fakeEngine) Transport() http.RoundTripper { return e.transport }

func (e *fakeEngine) Run(ctx context.Context, _ *slog.Logger, tell func(Life)) {
	defer close(e.ran)
	defer e.transport.CloseIdleConnections()
	tell(Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e1", BlockSize: 16, Blocks: 99}})
	for {
		select {
		case l := <-e.lives:
			tell(l)
		case <-ctx.Done():
			return
		}
	}
}

// journal keeps records in memory.
type journal struct {
	mu      sync.Mutex
	records []*usagev1.Record
}

func (j *journal) Append(r *usagev1.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

func (j *journal) of(admission string) []*usagev1.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []*usagev1.Record
	for _, r := range j.records {
		if r.Admission == admission {
			found = append(found, r)
		}
	}
	return found
}

// discard keeps nothing.
type discard struct{}

func (discard) Append(*usagev1.Record) {}

// one waits for the record of an admission.
func (j *journal) one(t *testing.T, admission string) *usagev1.Record {
	t.Helper()
	eventually(t, "a record of "+admission, func() bool { return len(j.of(admission)) > 0 })
	if n := len(j.of(admission)); n != 1 {
		t.Fatalf("%d records of %s", n, admission)
	}
	return j.of(admission)[0]
}

// shim is a worker under test with a door of its own.
type shim struct {
	*Worker
	door    *fakeDoor
	engine  *fakeEngine
	journal *journal
	client  *http.Client
	stop    context.CancelFunc
	done    chan error
	ended   bool
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newShim runs a worker before the engine at base until the test ends.
func newShim(t *testing.T, base string, change func(*Config)) *shim {
	t.Helper()
	return newShimAt(t, newDoor(t, "door-1"), base, change)
}

// newShimAt is newShim at a door that may have others.
func newShimAt(t *testing.T, door *fakeDoor, base string, change func(*Config)) *shim {
	t.Helper()
	s := startShim(t, door, base, change)
	eventually(t, "ready at the door", func() bool { return strings.HasSuffix(s.door.states(), "ready") && len(s.Status().Doors) > 0 })
	return s
}

// startShim is newShimAt before an engine that may not become ready.
func startShim(t *testing.T, door *fakeDoor, base string, change func(*Config)) *shim {
	t.Helper()
	s := &shim{door: door, journal: &journal{}, done: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	cfg := Config{Name: "w1", Spoke: "here", Endpoint: "large", Listen: "127.0.0.1:0", Doors: []string{s.door.target},
		JoinToken: "token", Journal: s.journal, Log: quiet(), DrainTimeout: patience}
	if base != "" {
		s.engine = newFakeEngine(t, base)
		cfg.Engine = s.engine
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.Worker, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- s.Run(ctx) }()
	t.Cleanup(func() { s.end(t) })
	return s
}

func (s *shim) end(t *testing.T) {
	t.Helper()
	if s.ended {
		return
	}
	s.ended = true
	s.stop()
	s.client.CloseIdleConnections()
	if err := <-s.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func (s *shim) context(t *testing.T, admission string) string {
	t.Helper()
	return s.door.minter.Mint(identity.Context{Admission: admission, Key: "k", Team: "t", Model: "m", Endpoint: "large", Revision: 3}, time.Now())
}

// request makes one with a valid context; header pairs follow.
func (s *shim) request(t *testing.T, ctx context.Context, admission, path, body string, headers ...string) *http.Request {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("X-Spokegate-Context", s.context(t, admission))
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return q
}

func (s *shim) do(t *testing.T, q *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := s.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("body: %v after %q", err, b)
	}
	return resp, string(b)
}

// server is an engine by handler.
func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

const (
	chatBody   = `{"model":"m","messages":[]}`
	streamBody = `{"model":"m","messages":[],"stream":true}`
)
