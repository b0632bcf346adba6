//go:build engine

// Package engine runs the shipped binary, the real Envoy and the real vLLM (on CPU, with a tiny model) as an operator would:
// a door, an Envoy, a worker. It takes minutes, so it is no part of `make test`: `make test-engine` runs it.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/usage"
)

const (
	// startPatience is what vLLM gets on a machine that does much else; alone it needs 90 s.
	startPatience = 20 * time.Minute
	patience      = 5 * time.Minute
	model         = "tiny"
	otherModel    = "tiny-other" // of an endpoint of its own
	blockSize     = 32
)

// site is a door with its Envoy, in a folder of its own.
type site struct {
	root, dir   string
	binary      string
	listen, ops string
	admin       string
	key         string
	door, envoy *process

	mu      sync.Mutex
	records []*usagev1.Record // of all journals in dir/spool
	workers []*worker
}

// the site, which lives as long as the tests.
var the *site

func TestMain(m *testing.M) {
	flag.Parse()
	if err := open(); err != nil {
		fmt.Fprintln(os.Stderr, "engine tests:", err)
		os.Exit(1)
	}
	code := m.Run()
	the.close(code != 0)
	os.Exit(code)
}

// say keeps who waits from thinking that it hangs.
func say(format string, args ...any) {
	fmt.Printf("    %s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func open() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "sge")
	if err != nil {
		return err
	}
	the = &site{root: root, dir: dir, binary: filepath.Join(root, "bin", "spokegate"), listen: freeAddr(), ops: freeAddr(), admin: freeAddr()}
	if b := os.Getenv("SPOKEGATE_TEST_BINARY"); b != "" {
		the.binary = b
	}
	for what, path := range map[string]string{"make vllm": the.python(), "make build": the.binary, "make envoy": the.envoyPath()} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run `%s` first", err, what)
		}
	}
	return the.start()
}

func (s *site) python() string    { return filepath.Join(s.root, ".tools/vllm/bin/python") }
func (s *site) modelDir() string  { return filepath.Join(s.root, ".tools/tiny-model") }
func (s *site) envoyPath() string { return filepath.Join(s.root, ".tools/envoy/envoy") }
func (s *site) path(name string) string {
	return filepath.Join(s.dir, name)
}

func (s *site) start() error {
	key, hash := identity.NewKey()
	s.key = key
	policy := fmt.Sprintf(`
endpoints: [{name: gpus}, {name: others}]
models: [{name: %[1]s, endpoint: gpus}, {name: %[2]s, endpoint: others}]
teams: [{name: t1, models: [%[1]s, %[2]s]}]
keys:
  - {id: main, team: t1, sha256: "%[3]x"}
`, model, otherModel, hash[:])
	for name, text := range map[string]string{"policy.yaml": policy, "join-token": strings.Repeat("engine-tests-", 4)} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	bootstrap, err := exec.Command(s.binary, "envoy", "print", "-bootstrap", "-dir", s.dir, "-listen", s.listen, "-admin", s.admin).Output()
	if err != nil {
		return fmt.Errorf("envoy print: %w", err)
	}
	if err := os.WriteFile(s.path("envoy.yaml"), bootstrap, 0o600); err != nil {
		return err
	}
	if s.door, err = s.run("door", nil, s.binary, "door", "-dir", s.dir, "-listen", s.listen, "-admin", s.admin, "-ops", s.ops,
		"-policy", s.path("policy.yaml"), "-join-token-file", s.path("join-token")); err != nil {
		return err
	}
	if s.envoy, err = s.run("envoy", nil, s.envoyPath(), "--config-path", s.path("envoy.yaml"), "--disable-hot-restart", "--log-level", "warning"); err != nil {
		return err
	}
	say("door and Envoy at %s, files in %s", s.listen, s.dir)
	go func() { _ = usage.Tail(context.Background(), s.path("spool"), s.take) }()
	return nil
}

func (s *site) close(failed bool) {
	for _, w := range s.workers {
		w.process.end()
	}
	s.envoy.end()
	s.door.end()
	if failed {
		say("the logs are in %s", s.dir)
		return
	}
	_ = os.RemoveAll(s.dir)
}

func (s *site) take(r *usagev1.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	return nil
}

// recorded are the records so far that fit.
func (s *site) recorded(fits func(*usagev1.Record) bool) []*usagev1.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*usagev1.Record
	for _, r := range s.records {
		if fits(r) {
			found = append(found, r)
		}
	}
	return found
}

// ofKind fits records of a source.
func ofKind(source, kind string) func(*usagev1.Record) bool {
	return func(r *usagev1.Record) bool { return r.Source == source && r.Kind == kind }
}

// process is a child with a log of its own.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // after done
}

// run starts a child in a group of its own, which ends with the tests.
func (s *site) run(name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, log: s.path(name + ".log"), cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, s.dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // its end would be the child's
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) end() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// text is all that it has logged.
func (p *process) text() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

// worker is a shim with the real engine.
type worker struct {
	*process
	site  *site
	name  string
	model string // that it alone serves
}

// startWorker starts one for a model; it is not ready yet. It is patient: a busy machine is no fault of an engine.
func (s *site) startWorker(t *testing.T, name, endpoint, model string, block int, flags []string, more ...string) *worker {
	t.Helper()
	argv := append([]string{s.binary, "worker", "-name", name, "-endpoint", endpoint, "-dir", s.dir, "-doors", "unix:" + s.path("run/fleet.sock"),
		"-join-token-file", s.path("join-token"), "-ops", "127.0.0.1:0", "-drain", "10m", "-hung", "10m", "-start-timeout", startPatience.String(),
		"-engine", "vllm", "-model", s.modelDir(), "-served-name", model,
		"-engine-command", s.python() + " -m vllm.entrypoints.openai.api_server"}, flags...)
	argv = append(argv, "--", "--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager", "--block-size", fmt.Sprint(block),
		"--max-model-len", "4096", "--max-num-seqs", "32", "--num-gpu-blocks-override", "512", "--shutdown-timeout", "30",
		"--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes") // for testRender
	p, err := s.run(name, []string{"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}, append(argv, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{p, s, name, model}
	s.workers = append(s.workers, w)
	return w
}

// page is one of the worker's own pages; empty while there is none.
func (w *worker) page(path string) string {
	address, err := os.ReadFile(w.site.path("run/" + w.name + ".ops"))
	if err != nil {
		return ""
	}
	resp, err := http.Get("http://" + strings.TrimSpace(string(address)) + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// awaitReady waits until the engine serves and the door sends it requests, and tells how it goes.
func (w *worker) awaitReady(t *testing.T) {
	t.Helper()
	began, said, at := time.Now(), "", time.Time{}
	for time.Since(began) < startPatience {
		select {
		case <-w.done:
			t.Fatalf("%s ended: %v\n%s", w.name, w.err, tail(w.text()))
		case <-time.After(500 * time.Millisecond):
		}
		line, _, _ := strings.Cut(w.page("/readyz"), "\n")
		if line != said || time.Since(at) >= 30*time.Second {
			say("%s after %s: %s", w.name, time.Since(began).Round(time.Second), line)
			said, at = line, time.Now()
		}
		if strings.HasPrefix(line, "ok") && w.answers() {
			return
		}
	}
	t.Fatalf("%s is not ready after %v\n%s", w.name, startPatience, tail(w.text()))
}

// answers says that a request goes through.
func (w *worker) answers() bool {
	a := w.site.ask(context.Background(), map[string]any{"model": w.model, "messages": words("hi"), "max_tokens": 1})
	return a.status == http.StatusOK
}

// engineProcesses are all below the worker's guard: vLLM's own, and what it started.
func (w *worker) engineProcesses() []int {
	below := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var pid, parent int
		var state string
		if _, err := fmt.Sscanf(string(b[bytes.LastIndexByte(b, ')')+1:]), "%s %d", &state, &parent); err != nil || state == "Z" {
			continue
		}
		fmt.Sscan(filepath.Base(filepath.Dir(path)), &pid)
		below[parent] = append(below[parent], pid)
	}
	var found []int
	for next := below[w.cmd.Process.Pid]; len(next) > 0; next = next[1:] {
		found = append(found, next[0])
		next = append(next, below[next[0]]...)
	}
	return found
}

func alive(pids []int) (left []int) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !bytes.Contains(b, []byte(") Z ")) {
			left = append(left, pid)
		}
	}
	return left
}

// answer is what a client got.
type answer struct {
	status    int
	header    http.Header
	body      string
	err       error
	admission string
}

func words(text string) []any {
	return []any{map[string]any{"role": "user", "content": text}}
}

// ask sends one chat request through the door.
func (s *site) ask(ctx context.Context, body map[string]any) answer {
	return s.read(s.begin(ctx, body))
}

// begin sends a request and returns when its answer begins.
func (s *site) begin(ctx context.Context, body map[string]any) (*http.Response, error) {
	if body["model"] == nil {
		body["model"] = model
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.listen+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+s.key)
	q.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(q)
}

func (s *site) read(resp *http.Response, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err, resp.Header.Get("X-Request-Id")}
}

// eventually waits for a fact.
func eventually(t *testing.T, within time.Duration, what string, fact func() bool) {
	t.Helper()
	for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if fact() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

func freeAddr() string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}
