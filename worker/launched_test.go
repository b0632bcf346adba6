package worker

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// childGuard is a Guard with the process's arguments behind "--", whose child is childEngine.
func childGuard() {
	_ = os.Setenv("WORKER_TEST_ROLE", "engine")
	os.Exit(Guard(os.Args[slices.Index(os.Args, "--")+1:], os.Stdin))
}

// childEngine stands for an engine of any kind: it listens where its arguments say, starts a process that leaves its group
// and would outlive it, and does as WORKER_TEST_SCRIPT says.
func childEngine() {
	fmt.Println("engine arguments:", strings.Join(os.Args[1:], " "))
	switch os.Getenv("WORKER_TEST_SCRIPT") {
	case "memory":
		fmt.Println("(EngineCore) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
		fmt.Println("RuntimeError: Engine core initialization failed. See root cause above.")
		os.Exit(1)
	case "crash":
		fmt.Println("ValueError: no such thing")
		fmt.Println("bye")
		os.Exit(3)
	case "slow":
		fmt.Println("Loading safetensors checkpoint shards:  40% Completed | 2/5")
		time.Sleep(time.Hour)
	}
	stray := exec.Command("sleep", "3600")
	stray.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stray.Start(); err != nil {
		os.Exit(1)
	}
	go func() { _ = stray.Wait() }()
	fmt.Println("stray", stray.Process.Pid)
	lis, err := childListen()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() { _ = http.Serve(lis, http.HandlerFunc(serveChild)) }()
	<-asked
	os.Exit(0)
}

func childListen() (net.Listener, error) {
	if socket := flagValue(os.Args, "--uds"); socket != "" {
		return net.Listen("unix", socket)
	}
	return net.Listen("tcp", net.JoinHostPort(flagValue(os.Args, "--host"), flagValue(os.Args, "--port")))
}

// serveChild answers as vLLM would, where it has the API key that its environment or a file of its arguments names.
func serveChild(w http.ResponseWriter, r *http.Request) {
	key := os.Getenv("VLLM_API_KEY")
	if file := flagValue(os.Args, "--config"); file != "" {
		b, _ := os.ReadFile(file)
		key, _ = strconv.Unquote(strings.TrimSpace(strings.TrimPrefix(string(b), "api-key: ")))
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/v1/") && key != "" && r.Header.Get("Authorization") != "Bearer "+key:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/metrics":
		fmt.Fprint(w, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"48\",num_gpu_blocks=\"77\"} 1\n"+
			"# TYPE sglang:prompt_tokens_total counter\nsglang:prompt_tokens_total 5\n")
	case r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}
}

func launchConfig(t *testing.T, kind, script string) LaunchConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return LaunchConfig{Kind: kind, Guard: []string{self, "-test.run=none", "--"}, Folder: socketFolder(t), Command: []string{self},
		Model: "/models/m", ServedName: "m", Env: append(os.Environ(), "WORKER_TEST_ROLE=guard", "WORKER_TEST_SCRIPT="+script), Log: quiet(),
		StopTimeout: patience}
}

// strayOf is the process that the engine said it has started beside it.
func strayOf(t *testing.T, log *logBuffer) (pid int) {
	t.Helper()
	eventually(t, "a stray process", func() bool {
		_, rest, found := strings.Cut(log.String(), "line=\"stray ")
		number, _, whole := strings.Cut(rest, "\"")
		pid, _ = strconv.Atoi(number)
		return found && whole
	})
	return pid
}

// Each kind is started as its documents say, reached by the shim, and ended with all that it had started.
func TestLaunched(t *testing.T) {
	for kind, want := range map[string]struct {
		args   []string
		blocks uint32
	}{
		"vllm": {[]string{"--model /models/m --served-model-name m --enable-prompt-tokens-details --uds ", "/s --enable-prefix-caching --kv-events-config ",
			`"endpoint":"ipc://`, "/inproc-kv\"", "/inproc-replay\"", " --max-num-seqs 8"}, 48},
		"sglang": {[]string{"--config ", "--model-path /models/m --served-model-name m --host 127.0.0.1 --port ", "--enable-metrics --page-size 16 --kv-events-config "}, 16},
		"trtllm": {[]string{"/models/m --served_model_name m --host 127.0.0.1 --port "}, 0},
	} {
		t.Run(kind, func(t *testing.T) {
			var log logBuffer
			cfg := launchConfig(t, kind, "")
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Args = []string{"--max-num-seqs", "8"}
			engine, err := NewLaunched(cfg)
			if err != nil {
				t.Fatal(err)
			}
			s := newShim(t, "", func(c *Config) { c.Engine, c.Watch = engine, hurried })
			said := strings.ReplaceAll(log.String(), `\"`, `"`)
			for _, args := range want.args {
				if !strings.Contains(said, args) {
					t.Errorf("no %q among the arguments: %s", args, said)
				}
			}
			if engine.(*launched).key != "" && strings.Contains(said, engine.(*launched).key) {
				t.Error("the API key is in the log or the arguments")
			}
			if h := s.door.hellos[len(s.door.hellos)-1]; h.Engine != kind || h.BlockSize != want.blocks {
				t.Errorf("%v", h)
			}
			if resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/completions", `{"model":"m","prompt":"x"}`)); resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			stray := strayOf(t, &log)
			if info, err := os.Stat(cfg.Folder); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the folder: %v %v", info, err)
			}
			s.end(t)
			if alive(stray) {
				t.Error("what the engine had started outlives it")
			}
			if _, err := os.Stat(cfg.Folder); !os.IsNotExist(err) {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}

// livesOf runs an engine until a life fits.
func livesOf(t *testing.T, cfg LaunchConfig, fits func(Life) bool) (found Life, starts int) {
	t.Helper()
	engine, err := NewLaunched(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 3*patience)
	defer stop()
	engine.Run(ctx, quiet(), func(l Life) {
		if l.State == workerv1.State_STATE_STARTING && l.Reason == "" {
			starts++
		}
		if fits(l) && found == (Life{}) {
			found = l
			stop()
		}
	})
	if found == (Life{}) {
		t.Fatal("never")
	}
	return found, starts
}

// An engine that fails tells why, by its own log; one that fails again and again is given up.
func TestLaunchedFails(t *testing.T) {
	cfg := launchConfig(t, "vllm", "memory")
	l, _ := livesOf(t, cfg, func(l Life) bool { return l.State == workerv1.State_STATE_FAILED })
	if l.Cause != causeMemory || l.Reason != "out of memory: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB." {
		t.Errorf("%+v", l)
	}
	cfg = launchConfig(t, "vllm", "crash")
	cfg.Crashes = 2
	l, starts := livesOf(t, cfg, func(l Life) bool { return strings.HasPrefix(l.Reason, "given up") })
	if want := "given up, for it failed 2 times in 10m0s; at last: ended before it was ready: exit status 3 (bye); its log: ValueError: no such thing"; l.Reason != want || l.Cause != causeStart || starts != 2 {
		t.Errorf("%d starts, %+v", starts, l)
	}
	cfg = launchConfig(t, "vllm", "slow")
	l, _ = livesOf(t, cfg, func(l Life) bool { return l.Reason != "" })
	if l.State != workerv1.State_STATE_STARTING || l.Reason != "loading safetensors checkpoint shards: 40%" {
		t.Errorf("%+v", l)
	}
	cfg.StartTimeout = time.Second
	l, _ = livesOf(t, cfg, func(l Life) bool { return l.State == workerv1.State_STATE_FAILED })
	if !strings.HasPrefix(l.Reason, "not ready after 1s") || l.Cause != causeStart {
		t.Errorf("%+v", l)
	}
}

// Arguments that would open a side door, or break what the shim relies on, are refused, however they are written.
func TestReservedArguments(t *testing.T) {
	for _, test := range []struct {
		kind string
		args []string
		bad  string
	}{
		{"vllm", []string{"--host", "0.0.0.0"}, "--host"}, {"vllm", []string{"--api-key=x"}, "--api-key"}, {"vllm", []string{"--kv_events_config", "{}"}, "--kv-events-config"},
		{"vllm", []string{"--max-num-seqs", "8", "--disable-log-stats"}, "--disable-log-stats"}, {"sglang", []string{"--port=1"}, "--port"},
		{"trtllm", []string{"--served_model_name", "x"}, "--served-model-name"},
		{"vllm", []string{"--no-enable-prefix-caching", "--block-size", "32", "-tp", "2"}, ""},
	} {
		_, err := NewLaunched(LaunchConfig{Kind: test.kind, Model: "m", Folder: "/tmp/x", Args: test.args})
		if (err != nil) != (test.bad != "") || err != nil && !strings.HasPrefix(err.Error(), test.bad+" is not for you to set") {
			t.Errorf("%s %q: %v", test.kind, test.args, err)
		}
	}
	for _, cfg := range []LaunchConfig{{Kind: "vllm"}, {Kind: "none", Model: "m"}, {Kind: "vllm", Model: "m", Crashes: -1}, {Kind: "vllm", Model: "m", Folder: "/" + strings.Repeat("x", maxSocket)}} {
		if _, err := NewLaunched(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// Where KV events are read: a pair of sockets a rank, in the engine's own folder.
func TestKVSource(t *testing.T) {
	source := func(kind string, args ...string) (KVSource, bool) {
		e, err := NewLaunched(LaunchConfig{Kind: kind, Model: t.TempDir(), Folder: "/run/e", Args: args})
		if err != nil {
			t.Fatal(err)
		}
		return e.(KVAnnouncer).KVSource()
	}
	s, ok := source("vllm", "--data-parallel-size", "2")
	if !ok || !slices.Equal(s.Events, []string{"ipc:///run/e/inproc-kv", "ipc:///run/e/inproc-kv_dp1"}) ||
		!slices.Equal(s.Replay, []string{"ipc:///run/e/inproc-replay", "ipc:///run/e/inproc-replay_dp1"}) || s.Kind != "vllm" || s.ModelDir == "" {
		t.Errorf("%+v", s)
	}
	for kind, args := range map[string][]string{"vllm": {"--no-enable-prefix-caching"}, "sglang": {"--dp-size=2"}, "trtllm": nil} {
		if s, ok := source(kind, args...); ok || s.Why == "" {
			t.Errorf("%s: %+v", kind, s)
		}
	}
}

// childLaunchShim is a shim that is killed; its engine had started processes that leave its group.
func childLaunchShim() {
	self, _ := os.Executable()
	engine, err := NewLaunched(LaunchConfig{Kind: "vllm", Guard: []string{self, "-test.run=none", "--"}, Folder: os.Getenv("WORKER_TEST_FOLDER"), Command: []string{self},
		Model: "m", Env: append(os.Environ(), "WORKER_TEST_ROLE=guard"), Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		os.Exit(1)
	}
	engine.Run(context.Background(), quiet(), func(Life) {})
}

// A shim that is killed leaves nothing of its engine behind: no process, in whatever session.
func TestNoOrphanBelowAGuard(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=none")
	cmd.Env = append(os.Environ(), "WORKER_TEST_ROLE=launch-shim", "WORKER_TEST_FOLDER="+filepath.Join(socketFolder(t), ""))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stray := 0
	for lines := bufio.NewScanner(out); stray == 0 && lines.Scan(); {
		if _, rest, found := strings.Cut(lines.Text(), "line=\"stray "); found {
			stray, _ = strconv.Atoi(strings.TrimSuffix(rest, "\""))
		}
	}
	guards := children(t, cmd.Process.Pid)
	if len(guards) != 1 || stray == 0 {
		t.Fatalf("guards %v, stray %d", guards, stray)
	}
	all := append(children(t, guards[0]), guards[0], stray)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "all are gone", func() bool { return !slices.ContainsFunc(all, alive) })
}
