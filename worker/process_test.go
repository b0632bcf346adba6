package worker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// socketFolder is short enough for a socket, and gone at the end.
func socketFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "engine")
}

func simConfig(t *testing.T, role string) SimConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return SimConfig{Binary: self, Folder: socketFolder(t), Args: []string{"-test.run=none"}, Env: append(os.Environ(), "WORKER_TEST_ROLE="+role), Log: quiet()}
}

// logBuffer is a log that tests read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// children of this process that have role in their environment.
func children(t *testing.T, parent int) []int {
	t.Helper()
	raw, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range raw {
		b, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// The whole life of a simulated engine: started, serving, killed, restarted with a new epoch, drained, gone.
func TestSimulatedEngine(t *testing.T) {
	var log logBuffer
	cfg := simConfig(t, "sim")
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	engine := NewSim(cfg)
	s := newShim(t, "", func(c *Config) { c.Engine = engine })
	eventually(t, "one child", func() bool { return len(children(t, os.Getpid())) == 1 })
	pid := children(t, os.Getpid())[0]

	socket := *engine.(*simEngine).socket.Load()
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v %v", info.Mode(), err)
	}
	_, body := s.do(t, s.request(t, context.Background(), "a", "/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"max_tokens":5}`))
	if !strings.Contains(body, "(sim") || strings.Contains(body, `"usage":{`) || !strings.Contains(body, ": spokegate-usage {") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%s", body)
	}
	if r := s.journal.one(t, "a"); r.GetCompletionTokens() != 5 || r.CachedTokens == nil || r.CountedFrom != "engine" || r.Outcome != "complete" {
		t.Errorf("%v", r)
	}
	first := s.door.hellos[len(s.door.hellos)-1]
	if first.Engine != "sim" || first.Epoch == "" {
		t.Errorf("hello %v", first)
	}

	running := s.async(t, "cut") // killed under a request
	eventually(t, "running", func() bool { return s.states.count() == 1 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := <-running; r.err != nil || r.status == 200 && !strings.Contains(r.body, "upstream_cut") && !strings.HasSuffix(r.body, "[DONE]\n\n") {
		t.Errorf("%+v", r)
	}
	eventually(t, "failed, and ready again", func() bool {
		told := s.door.states()
		i := strings.Index(told, "failed(ended: signal: killed")
		return i >= 0 && strings.HasSuffix(told[i:], "ready")
	})
	s.door.mu.Lock()
	again := s.door.hellos[len(s.door.hellos)-1]
	s.door.mu.Unlock()
	if again.Epoch == first.Epoch {
		t.Error("the same epoch after a restart")
	}
	if resp, body := s.do(t, s.request(t, context.Background(), "b", "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":5}`)); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	s.end(t)
	if left := children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("children left: %v", left)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	if !strings.Contains(log.String(), "simulated engine listens") {
		t.Errorf("the engine's log is not passed on: %s", log.String())
	}
}

func TestEngineThatCannotStart(t *testing.T) {
	for name, change := range map[string]func(*SimConfig){
		"not started: ":             func(c *SimConfig) { c.Binary = "/no/such/file" },
		"ended before it was ready": func(c *SimConfig) { c.Binary = "/bin/false" },
	} {
		cfg := simConfig(t, "sim")
		change(&cfg)
		ctx, stop := context.WithCancel(context.Background())
		failed := make(chan string, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			NewSim(cfg).Run(ctx, quiet(), func(l Life) {
				if l.State == workerv1.State_STATE_FAILED {
					select {
					case failed <- l.Reason:
					default:
					}
				}
			})
		}()
		if reason := <-failed; !strings.Contains(reason, name) {
			t.Errorf("%q, expected %q", reason, name)
		}
		stop()
		<-done
	}
}

// childShim runs an engine, says its process id, and waits to be killed.
func childShim() {
	self, err := os.Executable()
	if err != nil {
		os.Exit(1)
	}
	cfg := SimConfig{Binary: self, Folder: os.Getenv("WORKER_TEST_FOLDER"), Args: []string{"-test.run=none"},
		Env: append(os.Environ(), "WORKER_TEST_ROLE=sim"), Log: slog.New(slog.DiscardHandler)}
	NewSim(cfg).Run(context.Background(), cfg.Log, func(l Life) {
		if l.State == workerv1.State_STATE_READY {
			fmt.Println("ready")
		}
	})
}

// A shim that is killed leaves no engine behind.
func TestNoOrphan(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=none")
	cmd.Env = append(os.Environ(), "WORKER_TEST_ROLE=shim", "WORKER_TEST_FOLDER="+socketFolder(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	engines := children(t, cmd.Process.Pid)
	if len(engines) != 1 {
		t.Fatalf("engines %v", engines)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the engine is gone", func() bool { return !alive(engines[0]) })
}

// An engine that runs and does not answer is given up and started again, and so is what a killed shim left in the folder.
func TestDeafEngine(t *testing.T) {
	cfg := simConfig(t, "sim")
	if err := os.MkdirAll(cfg.Folder, 0o755); err != nil { // left behind
		t.Fatal(err)
	}
	engine := NewSim(cfg)
	engine.(*simEngine).process.deaf = 2 * time.Second
	s := newShim(t, "", func(c *Config) { c.Engine = engine })
	if info, err := os.Stat(cfg.Folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v %v", info.Mode(), err)
	}
	if err := os.Remove(*engine.(*simEngine).socket.Load()); err != nil { // nobody can reach it any more
		t.Fatal(err)
	}
	eventually(t, "failed, and ready again", func() bool {
		told := s.door.states()
		i := strings.Index(told, "failed(runs, and does not answer")
		return i >= 0 && strings.HasSuffix(told[i:], "ready")
	})
	tries := 0
	eventually(t, "it serves", func() bool { // in a machine that stands still for long it may be deaf again
		tries++
		resp, _ := s.do(t, s.request(t, context.Background(), fmt.Sprint("a", tries), "/v1/chat/completions", `{"model":"m","messages":[],"max_tokens":5}`))
		return resp.StatusCode == http.StatusOK
	})
	s.end(t)
}

func TestLogLines(t *testing.T) {
	var log logBuffer
	l := &lines{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, part := range []string{"one\ntw", "o\n\n", strings.Repeat("x", maxLine+5), "\nlast"} {
		if n, err := io.WriteString(l, part); n != len(part) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	l.flush()
	if got := strings.Count(log.String(), "msg=engine"); got != 5 || l.last() != "last" || !strings.Contains(log.String(), "line=two\n") {
		t.Errorf("%d lines:\n%s", got, log.String())
	}
}

func TestAttached(t *testing.T) {
	var healthy atomic.Bool
	var models atomic.Int32
	healthy.Store(true)
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !healthy.Load():
			w.WriteHeader(500)
		case r.URL.Path == "/base/v1/models":
			models.Add(1)
		default:
			w.WriteHeader(404)
		}
	})
	e, err := NewAttached(url+"/base/v1/", "")
	if err != nil {
		t.Fatal(err)
	}
	a := e.(*attached)
	a.every = time.Millisecond
	var log logBuffer
	ctx, stop := context.WithCancel(context.Background())
	lives, done := make(chan Life, 100), make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)), func(l Life) { lives <- l })
	}()
	next := func(want workerv1.State) Life {
		t.Helper()
		l := <-lives
		if l.State != want {
			t.Fatalf("%+v, expected %v", l, want)
		}
		return l
	}
	next(workerv1.State_STATE_STARTING)
	first := next(workerv1.State_STATE_READY)
	healthy.Store(false)
	if l := next(workerv1.State_STATE_FAILED); l.Reason != "GET /health answered 500" || l.Epoch != first.Epoch {
		t.Errorf("%+v", l)
	}
	healthy.Store(true)
	if l := next(workerv1.State_STATE_READY); l.Epoch == first.Epoch || l.Reason != "" {
		t.Errorf("%+v", l)
	}
	stop()
	<-done
	if models.Load() == 0 || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%d questions for models; log:\n%s", models.Load(), log.String())
	}
	for _, bad := range []string{"localhost:8000", "ftp://x", "http://", "http://u:p@x", "http://x?y", "%"} {
		if _, err := NewAttached(bad, ""); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
