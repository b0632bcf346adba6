package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
)

// realDoor is the doors' own service, which the shim joins beside the fake one.
type realDoor struct {
	*join.Server
	minter *identity.Minter
	target string
}

func newRealDoor(t *testing.T) *realDoor {
	t.Helper()
	m, err := identity.NewMinter("door-real")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	d := &realDoor{minter: m, target: "unix:" + l.Addr().String(), Server: &join.Server{
		Fleet: fleet.New(), Token: "token", Door: "door-real", Keys: m.Keys, Log: quiet()}}
	g := grpc.NewServer()
	workerv1.RegisterFleetServer(g, d.Server)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-served })
	return d
}

// join makes a shim of this door too, and waits until it is one.
func (d *realDoor) join(t *testing.T, engine string, change func(*Config)) *shim {
	t.Helper()
	s := newShim(t, engine, func(c *Config) {
		c.Doors = append(c.Doors, d.target)
		if change != nil {
			change(c)
		}
	})
	eventually(t, "joined the real door", func() bool { return slices.Contains(s.Status().Doors, "door-real") })
	return s
}

// cancel cuts a request, and waits until the shim has heard of it.
func (d *realDoor) cancel(t *testing.T, s *shim, admission, reason string) {
	t.Helper()
	for _, a := range []string{admission, "after " + admission} { // they come in order
		if n := d.Cancel("large", a, reason); n != 1 {
			t.Fatalf("%d shims were told", n)
		}
	}
	eventually(t, "the cut is known", func() bool {
		s.Worker.running.mu.Lock()
		defer s.Worker.running.mu.Unlock()
		return s.Worker.running.early["after "+admission] != nil
	})
}

// answered is what a client got.
type answered struct {
	*http.Response
	body string
}

// begin sends a request, and returns when it is in the shim.
func (s *shim) begin(t *testing.T, q *http.Request) <-chan answered {
	t.Helper()
	got := make(chan answered, 1)
	go func() {
		resp, err := s.client.Do(q)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		got <- answered{resp, string(b)}
	}()
	eventually(t, "running", func() bool {
		s.Worker.running.mu.Lock()
		defer s.Worker.running.mu.Unlock()
		return len(s.Worker.running.here) == 1
	})
	return got
}

// endless streams until its request ends, and says so.
func endless(t *testing.T, ended chan<- string) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Accept") == "nothing" {
			<-r.Context().Done()
		}
		for n := 1; r.Context().Err() == nil; n++ {
			sse(w, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":%d}}\n\n", n))
			time.Sleep(time.Millisecond)
		}
		ended <- r.Header.Get("X-Request-Id")
	})
}

func TestRevokedMidStream(t *testing.T) {
	ended := make(chan string, 8)
	d := newRealDoor(t)
	s := d.join(t, endless(t, ended), nil)
	for path, want := range map[string]string{
		"/v1/chat/completions": "data: {\"error\":{\"message\":\"The request was ended: its API key was revoked; the answer is not whole.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_cut\"}}\n\n",
		"/v1/messages":         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"The request was ended: its API key was revoked; the answer is not whole.\",\"code\":\"upstream_cut\"}}\n\n",
		"/v1/responses":        "\"code\":\"upstream_cut\"}}\n\n",
	} {
		resp, err := s.client.Do(s.request(t, context.Background(), path, path, streamBody))
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %q %v", path, resp.StatusCode, line, err)
		}
		d.cancel(t, s, path, "revoked")
		rest, err := io.ReadAll(in)
		resp.Body.Close()
		if err != nil || !strings.HasSuffix(string(rest), want) || !strings.Contains(string(rest), "was revoked") {
			t.Errorf("%s ends with %q, %v", path, rest[max(0, len(rest)-300):], err)
		}
		if id := wait(t, ended); id != path {
			t.Errorf("the engine ended %s instead of %s", id, path)
		}
		r := s.journal.one(t, path)
		if r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{"revoked"}) || r.GetStatus() != 200 {
			t.Errorf("%s: %v", path, r)
		}
	}
	eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
}

// Before the first byte the client learns it by the status, and does not come again; for another reason it may.
func TestCutBeforeTheAnswer(t *testing.T) {
	ended := make(chan string, 8)
	d := newRealDoor(t)
	s := d.join(t, endless(t, ended), nil)
	for reason, want := range map[string]struct {
		status                 int
		code, message, anomaly string
	}{
		"revoked": {401, "invalid_api_key", "its API key was revoked", "revoked"},
		"quota":   {503, "upstream_cut", "quota", "quota"},
		"No Word": {503, "upstream_cut", "cancelled", "cancelled"},
	} {
		got := s.begin(t, s.request(t, context.Background(), reason, "/v1/chat/completions", streamBody, "Accept", "nothing"))
		d.cancel(t, s, reason, reason)
		resp := wait(t, got)
		if resp.StatusCode != want.status || errorCode(t, resp.body) != want.code || !strings.Contains(resp.body, want.message) || resp.Header.Get("X-Spokegate-Refused") != "" {
			t.Errorf("%s: %d %v %s", reason, resp.StatusCode, resp.Header, resp.body)
		}
		if r := s.journal.one(t, reason); r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{want.anomaly}) {
			t.Errorf("%s: %v", reason, r)
		}
		eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
	}
}

// A cut may overtake its request, which then never reaches the engine; a cut of somebody else's changes nothing.
func TestCutBeforeTheRequest(t *testing.T) {
	reg := prometheus.NewRegistry()
	d := newRealDoor(t)
	s := d.join(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Request-Id"); id != "other" {
			t.Errorf("the engine was asked %s", id)
		}
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}), func(c *Config) { c.Registerer = reg })
	d.cancel(t, s, "a", "revoked")
	resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/chat/completions", streamBody))
	if resp.StatusCode != 401 || errorCode(t, body) != "invalid_api_key" || resp.Header.Get("X-Spokegate-Refused") != "revoked" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if n := testutil.ToFloat64(s.metrics.refused.WithLabelValues("revoked")); n != 1 || len(s.journal.of("a")) != 0 {
		t.Errorf("counted %v times, %v", n, s.journal.of("a"))
	}
	if resp, body := s.do(t, s.request(t, context.Background(), "other", "/v1/chat/completions", chatBody)); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A cut while the body is on its way: the engine is not asked.
func TestCutInTheBody(t *testing.T) {
	d := newRealDoor(t)
	s := d.join(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), nil)
	body, feed := io.Pipe()
	q := s.request(t, context.Background(), "a", "/v1/chat/completions", "")
	q.Body, q.ContentLength = body, int64(len(chatBody))
	got := s.begin(t, q)
	_, _ = io.WriteString(feed, chatBody[:5])
	d.cancel(t, s, "a", "revoked")
	_, _ = io.WriteString(feed, chatBody[5:])
	feed.Close()
	if resp := wait(t, got); resp.StatusCode != 401 || errorCode(t, resp.body) != "invalid_api_key" {
		t.Errorf("%d %s", resp.StatusCode, resp.body)
	}
	if r := s.journal.one(t, "a"); r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{"revoked"}) {
		t.Errorf("%v", r)
	}
}

func TestEarlyCutsAreBounded(t *testing.T) {
	r, now := newRunning(), time.Unix(1000, 0)
	enter := func(admission string, at time.Time) *cut {
		ctx, cancel := context.WithCancelCause(context.Background())
		leave, before := r.enter(admission, cancel, at)
		if before == nil {
			if ctx.Err() != nil {
				t.Errorf("%s is cut as it enters", admission)
			}
			leave()
		}
		return before
	}
	for i := range earlyMost + 10 {
		r.cut(fmt.Sprint(i), "revoked", now)
	}
	if len(r.early) != earlyMost || len(r.order) != earlyMost || enter("9", now) != nil || enter("10", now) == nil {
		t.Errorf("%d and %d are remembered", len(r.early), len(r.order))
	}
	if enter("10", now.Add(contextLife)) == nil {
		t.Error("forgotten while its context lives")
	}
	if enter("10", now.Add(contextLife+time.Second)) != nil || len(r.early)+len(r.order)+len(r.here) != 0 {
		t.Errorf("%d and %d are remembered for ever", len(r.early), len(r.order))
	}
}

// Both keys of a door that changes its key are good, and the old one as long as a context of it lives.
func TestDoorChangesItsKey(t *testing.T) {
	d := newRealDoor(t)
	s := d.join(t, server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }),
		func(c *Config) { c.keyLife = time.Hour })
	n := 0
	verify := func() error {
		n++
		_, err := s.verifier.Verify(mint(t, d.minter, identity.Context{Admission: fmt.Sprint("k", n), Endpoint: "large"}, time.Now()), time.Now())
		return err
	}
	old := mint(t, d.minter, identity.Context{Admission: "old", Endpoint: "large"}, time.Now())
	late := mint(t, d.minter, identity.Context{Admission: "late", Endpoint: "large"}, time.Now())
	holds := func(id string) bool {
		s.keys.mu.Lock()
		defer s.keys.mu.Unlock()
		return s.keys.held[id] != nil
	}
	if err := d.minter.Announce(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next key is known", func() bool { return holds("door-real#2") })
	if err := verify(); err != nil {
		t.Errorf("the key in use, another announced: %v", err)
	}
	d.minter.Rotate()
	if err := verify(); err != nil {
		t.Errorf("the new key: %v", err)
	}
	eventually(t, "the old key is let go", func() bool {
		s.keys.mu.Lock()
		defer s.keys.mu.Unlock()
		return s.keys.held["door-real"].streams == 0
	})
	if _, err := s.verifier.Verify(old, time.Now()); err != nil {
		t.Errorf("a context of the old key: %v", err)
	}
	s.keys.expire("door-real", s.keys.held["door-real"])
	if _, err := s.verifier.Verify(late, time.Now()); err == nil || holds("door-real") {
		t.Errorf("the old key stays for ever: %v", err)
	}
}
