//go:build monitoring

package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is for what takes seconds on a free machine.
const patience = 4 * time.Minute

// rig is a spoke on this machine with its hub, Redis, Kafka and ledger, and a Prometheus that scrapes it all.
type rig struct {
	binary, dir string
	url, key    string
	redis       string
	kafka       string
	envFile     []string // what commands find the hub by
	prometheus  string   // its address
	client      *http.Client
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the test ends; what it says is in DIR/NAME.log.
func start(t *testing.T, dir, name string, argv ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		late.Stop()
		log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s said at last: %s", name, said[max(0, len(said)-2000):])
		}
	})
}

// eventually waits for a fact, and fails with the last reason why it is not so.
func eventually(t *testing.T, fact func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := fact()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// newRig starts the spoke. Its policy has limits that are soon reached.
func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{binary: filepath.Join(root, "bin", "spokegate"), client: &http.Client{Timeout: patience}}
	if r.dir, err = os.MkdirTemp("/tmp", "sgmon"); err != nil { // sockets want a short path
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(r.dir) })
	listen, ops := free(t), free(t)
	r.redis = free(t)
	_, port, _ := net.SplitHostPort(r.redis)
	start(t, r.dir, "redis", "redis-server", "--port", port, "--save", "", "--bind", "127.0.0.1")
	r.kafka = newBroker(t, r.dir)
	start(t, r.dir, "up", r.binary, "up", "-dir", r.dir, "-listen", listen, "-admin", free(t), "-ops", ops, "-hub-listen", free(t),
		"-envoy", filepath.Join(root, ".tools", "envoy", "envoy"), "-redis", "redis://"+r.redis, "-kafka", r.kafka)
	eventually(t, func() error {
		said, _ := os.ReadFile(filepath.Join(r.dir, "up.log"))
		if !strings.Contains(string(said), "The door is open") {
			return fmt.Errorf("not open yet: %s", said)
		}
		return nil
	})
	env, err := os.ReadFile(filepath.Join(r.dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	r.envFile = strings.Fields(string(env))
	for _, line := range r.envFile {
		if key, ok := strings.CutPrefix(line, "SPOKEGATE_KEY="); ok {
			r.key = key
		}
	}
	r.url = "http://" + listen
	r.command(t, 0, "limit", "set", "key/demo-key", "-requests-per-second", "5", "-burst", "5", "-tokens-per-minute", "1000000")
	start(t, r.dir, "ledger", r.binary, "usage", "ledger", "-kafka", r.kafka, "-db", filepath.Join(r.dir, "ledger.db"), "-listen", r.reserve(t, "ledger"))
	return r
}

// reserve takes an address and writes it where a role would.
func (r *rig) reserve(t *testing.T, name string) string {
	t.Helper()
	address := free(t)
	if err := os.WriteFile(filepath.Join(r.dir, name+".ops"), []byte(address), 0o600); err != nil {
		t.Fatal(err)
	}
	return address
}

// command runs one of ours and wants this exit code; below 0: any.
func (r *rig) command(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.Command(r.binary, args...)
	cmd.Env = append(os.Environ(), r.envFile...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); code >= 0 && got != code {
		t.Fatalf("spokegate %v: exit code %d, %v\n%s", args, got, err, out)
	}
	return string(out)
}

// ask sends one request, and reads at most so much of the answer; below 0: all.
func (r *rig) ask(ctx context.Context, key, model string, stream bool, most int64) {
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"max_tokens":20,"messages":[{"role":"user","content":"%s"}]}`, model, stream, strings.Repeat("What is a door? ", 40))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for buf, read := make([]byte, 256), int64(0); most < 0 || read < most; {
		n, err := resp.Body.Read(buf)
		if read += int64(n); err != nil {
			return
		}
	}
}

// traffic goes on until the test ends: answers, streams, streams that clients leave, wrong keys and models, and more than limits allow.
func (r *rig) traffic(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for _, each := range []func(){
		func() { r.ask(ctx, r.key, "sim-large", true, -1) },
		func() { r.ask(ctx, r.key, "sim-small", false, -1) },
		func() { r.ask(ctx, r.key, "sim-large", true, 100) },
		func() { r.ask(ctx, "wrong", "sim-large", false, -1); r.ask(ctx, r.key, "none", false, -1) },
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				each()
				select {
				case <-ctx.Done():
				case <-time.After(250 * time.Millisecond):
				}
			}
		})
	}
}

// killEngine kills the engine of the first worker: its shim starts it again.
func (r *rig) killEngine(t *testing.T) {
	t.Helper()
	links, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, link := range links {
		args, _ := os.ReadFile(link)
		words := bytes.Split(args, []byte{0})
		if len(words) > 1 && string(words[0]) == r.binary && string(words[1]) == "sim" && bytes.Contains(args, []byte(r.dir+"/")) && bytes.Contains(args, []byte("worker-1")) {
			var pid int
			if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("worker-1 has no engine")
}
