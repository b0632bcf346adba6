package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/envoy"
)

// adminPage stands for Envoy's, so that a test says what runs there; test/roll has the real one.
type adminPage struct {
	mu        sync.Mutex
	asked     []string
	running   int
	connected int
	broken    int // how many answers are 503 before one is good
}

func (a *adminPage) set(running, connected int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.connected = running, connected
}

func (a *adminPage) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

func (a *adminPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken > 0 {
		a.broken--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if what := r.Method + " " + r.URL.Path; len(a.asked) == 0 || a.asked[len(a.asked)-1] != what {
		a.asked = append(a.asked, what)
	}
	if r.URL.Path == "/stats" {
		fmt.Fprintf(w, `{"stats":[{"name":%q,"value":%d},{"name":%q,"value":%d}]}`, envoy.RunningStat, a.running, envoy.ConnectedStat, a.connected)
	}
}

// envoyLike is a process in place of Envoy, which does what the shell script says.
type envoyLike struct {
	flags       envoyRunFlags
	page        *adminPage
	stop, hurry context.CancelFunc
	ended       chan error
}

func startLike(t *testing.T, script string, page *adminPage, change func(*envoyRunFlags)) *envoyLike {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	e := &envoyLike{page: page, ended: make(chan error, 1)}
	e.flags.register(flag.NewFlagSet("test", flag.ContinueOnError))
	e.flags.delay, e.flags.drain, e.flags.settle = 0, time.Hour, 0
	e.flags.grace, e.flags.idle = time.Hour, time.Hour // no time but what a test sets ends anything
	e.flags.door.envoy.Admin = strings.TrimPrefix(server.URL, "http://")
	e.flags.door.envoy.DrainFile = filepath.Join(t.TempDir(), "drain")
	if change != nil {
		change(&e.flags)
	}
	started := filepath.Join(t.TempDir(), "started")
	var ctx, hurry context.Context
	hurry, e.hurry = context.WithCancel(context.Background())
	ctx, e.stop = context.WithCancel(context.Background())
	t.Cleanup(e.hurry)
	t.Cleanup(e.stop)
	argv := []string{"/bin/sh", "-c", strings.ReplaceAll(script, "STARTED", ": >"+started)}
	go func() { e.ended <- e.flags.run(ctx, hurry, argv, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	if strings.Contains(script, "STARTED") {
		soon(t, "Envoy has started", func() bool { _, err := os.Stat(started); return err == nil })
	}
	return e
}

// obedient ends on SIGTERM, as Envoy does.
const obedient = `trap "exit 0" TERM; STARTED; while :; do sleep 0.05; done`

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

func TestEnvoyIsEmptyBeforeItEnds(t *testing.T) {
	e := startLike(t, obedient, &adminPage{running: 2, connected: 3, broken: 2}, nil)
	if err := writeDrainFile(e.flags.door.envoy.DrainFile, "0"); err != nil {
		t.Fatal(err)
	}
	e.stop()
	want := []string{"POST /healthcheck/fail", "POST /drain_listeners", "GET /stats"}
	soon(t, "it is asked what runs", func() bool { return slices.Equal(e.page.seen(), want) })
	soon(t, "idle connections are left", func() bool {
		b, _ := os.ReadFile(e.flags.door.envoy.DrainFile)
		return string(b) == "1\n"
	})
	e.page.set(0, 3) // nothing runs, but connections are open on which something may come
	select {
	case err := <-e.ended:
		t.Fatalf("ended with connections open: %v", err)
	case <-time.After(3 * drainPoll):
	}
	e.page.set(0, 0)
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
}

func TestEnvoyEndsItself(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		e := startLike(t, script, &adminPage{}, nil)
		var how exitStatus
		if err := <-e.ended; !errors.As(err, &how) || how.status != want {
			t.Errorf("%q: %v, status %d, want %d", script, err, how.status, want)
		}
	}
	e := startLike(t, "STARTED; sleep 0.3; exit 3", &adminPage{running: 1}, nil)
	e.stop()
	var how exitStatus
	if err := <-e.ended; !errors.As(err, &how) || how.status != 3 {
		t.Errorf("while it is drained: %v", err)
	}
	missing := envoyRunFlags{}
	if err := missing.run(context.Background(), context.Background(), []string{"/no/envoy"}, slog.Default()); err == nil || !strings.Contains(err.Error(), "-envoy") {
		t.Errorf("no such binary: %v", err)
	}
}

// What does not end by itself is ended: requests by -drain, or by a second signal; Envoy by SIGKILL.
func TestEnvoyIsEndedInTime(t *testing.T) {
	busy := func() *adminPage { return &adminPage{running: 1, connected: 1} }
	e := startLike(t, obedient, busy(), func(f *envoyRunFlags) { f.drain = time.Millisecond })
	e.stop()
	if err := <-e.ended; err != nil {
		t.Errorf("-drain: %v", err)
	}
	e = startLike(t, obedient, busy(), nil)
	e.stop()
	soon(t, "it drains", func() bool { return len(e.page.seen()) == 3 })
	e.hurry()
	if err := <-e.ended; err != nil {
		t.Errorf("a second signal: %v", err)
	}
	e = startLike(t, "STARTED; exec sleep 60", busy(), nil) // as an Envoy that is starting still
	e.stop()
	e.hurry()
	if err := <-e.ended; err != nil {
		t.Errorf("ended while it starts: %v", err)
	}
	e = startLike(t, `trap "" TERM; STARTED; while :; do sleep 0.05; done`, &adminPage{}, func(f *envoyRunFlags) { f.grace = time.Millisecond })
	e.stop()
	if err := <-e.ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("an Envoy that ignores SIGTERM: %v", err)
	}
	// Connections that nobody closes do not hold it up.
	e = startLike(t, obedient, &adminPage{connected: 1}, func(f *envoyRunFlags) { f.idle = time.Millisecond })
	e.stop()
	if err := <-e.ended; err != nil {
		t.Errorf("connections: %v", err)
	}
}

func TestEnvoyRunFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-admin="}, "-admin"}, {[]string{"-drain=-1s"}, "-drain"}, {[]string{"-drain-delay=-1s"}, "-drain-delay"}, {[]string{"-listen=x"}, "listen"},
	} {
		var e envoyRunFlags
		f := flag.NewFlagSet("envoy run", flag.ContinueOnError)
		e.register(f)
		if err := f.Parse(append([]string{"-dir", t.TempDir()}, c.args...)); err != nil {
			t.Fatal(err)
		}
		if err := e.complete(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
}

// TestOneEnvoyAFolder: a second one leaves the first one's files as they are, and the first one's end lets others in.
func TestOneEnvoyAFolder(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-dir", dir, "-envoy", "/bin/true"}
	bootstrap := filepath.Join(dir, "run", "envoy.json")
	for range 2 {
		var how exitStatus
		if err := runEnvoyProcess(t.Context(), args); !errors.As(err, &how) {
			t.Fatalf("alone: %v", err)
		}
		first, err := holdRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(bootstrap, []byte("the first one's"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := runEnvoyProcess(t.Context(), args); err == nil || !strings.Contains(err.Error(), "envoy run` runs in "+dir) {
			t.Errorf("beside another: %v", err)
		}
		if text, _ := os.ReadFile(bootstrap); string(text) != "the first one's" {
			t.Errorf("the first one's file is %.100s", text)
		}
		first.Close()
	}
}
