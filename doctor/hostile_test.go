package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// liar answers as a door whose pages somebody else may have written.
func liar(t *testing.T, a About, more pages) (address string) {
	a.Role, a.Version, a.Folder = "door", "v1", "/"
	p := pages{"/about": a, "/readyz": "ok   well\n", "/fleet": map[string]any{}, "/metrics": ""}
	for path, v := range more {
		p[path] = v
	}
	return serve(t, p)
}

// TestTheKeyGoesToNoOtherHost: what a page elsewhere says of where clients come to does not decide who is told the key.
func TestTheKeyGoesToNoOtherHost(t *testing.T) {
	p := &process{ops: "203.0.113.1:10001", about: About{Role: "door", Name: "d", Flags: map[string]string{"listen": "198.51.100.2:80"}}}
	e := &exam{Target: Target{Key: "sk-secret", Model: "m"}, processes: []*process{p}}
	checkRequest(t.Context(), e)
	wantIDs(t, e.report(), "request-elsewhere")
	for _, c := range []struct {
		p    process
		at   string
		want bool
	}{
		{process{ops: "203.0.113.1:10001"}, "203.0.113.1:8443", true},
		{process{ops: "door.test:10001"}, "https://door.test:8443", true},
		{process{ops: "203.0.113.1:10001"}, "https://198.51.100.2:8443", false},
		{process{ops: "203.0.113.1:10001"}, "https://203.0.113.1:443@198.51.100.2:8443", false},
		{process{ops: "127.0.0.1:10001", here: true}, "127.0.0.2:8443", true},
		{process{ops: "127.0.0.1:10001", here: true}, "198.51.100.2:8443", false},
		{process{ops: "unix:/run/x", here: true}, "127.0.0.1:8443", true},
	} {
		if got := c.p.mayHaveKey(c.at); got != c.want {
			t.Errorf("%s, pages at %s: %v", c.at, c.p.ops, got)
		}
	}
}

// TestRedirectsAreNotFollowed, so that no page leads to another host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var heard atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
	t.Cleanup(other.Close)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)
	at := s.Listener.Addr().String()
	p := &process{ops: at, here: true, about: About{Role: "door", Name: "d", Flags: map[string]string{"listen": at}}}
	e := &exam{Target: Target{Key: "sk-secret"}, processes: []*process{p}}
	checkRequest(t.Context(), e)
	wantIDs(t, e.report(), "request-failed")
	wantIDs(t, examine(t, Target{Ops: []string{at}, Admin: []string{at}}), "ops-strange", "envoy-unreachable")
	if heard.Load() != 0 {
		t.Errorf("another host was asked %d times", heard.Load())
	}
}

// TestNamesOfOthersAreHarmless on a terminal, wherever they stand.
func TestNamesOfOthersAreHarmless(t *testing.T) {
	evil := "a\x1b]0;pwned\x07\u009b31m\u202e\u2028b\r\n"
	at := liar(t, About{Name: evil, Spoke: evil, Flags: map[string]string{"redis": "redis://127.0.0.1:1/" + evil, "kafka": evil, "tls-cert": evil}}, pages{
		"/readyz": "FAIL " + evil + "\n", "/fleet": map[string]any{"workers": []any{map[string]any{"name": evil, "state": evil, "reason": evil, "degraded": []string{evil}}}}})
	var out strings.Builder
	if err := examine(t, Target{Ops: []string{at}}).Print(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "pwned") || strings.ContainsAny(out.String(), "\x1b\x07\u009b\u202e\u2028\r") {
		t.Errorf("%q", out.String())
	}
}

// TestEndlessAnswers: what is read of one, and what is made of it, is bounded.
func TestEndlessAnswers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for line := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	if _, err := get(t.Context(), s.Listener.Addr().String(), "/about"); err == nil {
		t.Error("an endless answer was read")
	}
	workers := strings.Repeat(`{"name":"x"},`, 5000)
	at := liar(t, About{Name: "d"}, pages{"/readyz": strings.Repeat("FAIL x\nFAIL y\n", 5000), "/fleet": fmt.Sprintf(`{"workers": [%s{}]}`, workers)})
	e := &exam{}
	e.ask(t.Context(), []string{at})
	if p := e.processes[0]; len(p.ready) != mostLines || len(p.fleet.Workers) != mostWorkers {
		t.Errorf("%d lines, %d workers", len(p.ready), len(p.fleet.Workers))
	}
}

// TestFilesThatNobodyShouldRead: a page names them, and it is not read for ever, nor are they told to whom it names.
func TestFilesThatNobodyShouldRead(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("top secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	var called atomic.Int32
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			called.Add(1)
			_ = conn.Close()
		}
	}()
	for _, file := range []string{pipe, "/dev/zero"} {
		at := liar(t, About{Name: "d", Flags: map[string]string{"tls-cert": file, "tls-key": file, "fleet-cert": file, "fleet-key": file, "kafka-ca": file,
			"dir": filepath.Dir(pipe), "kafka": lis.Addr().String(), "kafka-sasl": "scram-sha-256", "kafka-user": "x", "kafka-password-file": secret}}, nil)
		r := examine(t, Target{Ops: []string{at}})
		if find(r, "kafka-secret") == nil || find(r, "check-cut") != nil || called.Load() != 0 {
			t.Errorf("%s: %q, the broker was called %d times", file, ids(r), called.Load())
		}
	}
}

// TestAHungCheck ends all the same.
func TestAHungCheck(t *testing.T) {
	e := &exam{Target: Target{Patience: time.Millisecond}, late: time.Millisecond}
	release := make(chan struct{})
	ended := make(chan struct{})
	e.timed(t.Context(), check{"hangs", func(context.Context, *exam) {
		defer close(ended)
		<-release
		e.found("policy-none", "too late", "x")
	}})
	wantIDs(t, e.report(), "check-cut")
	close(release)
	<-ended
}
