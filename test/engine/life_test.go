//go:build engine

package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// first is the worker that most tests share: on a Unix socket, with blocks of 32 tokens. second is on loopback, with blocks of
// 64, and serves a model of its own; it starts while the first one's engine starts again.
var first, second *worker

// TestLife is one life of a worker after the other, for a start takes minutes. Each part needs those before it, but for
// Overlap and OtherBlockSize.
func TestLife(t *testing.T) {
	for _, part := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"Start", testStart}, {"Answers", testAnswers}, {"Events", testEvents}, {"Render", testRender}, {"Overlap", testOverlap}, {"Cut", testCut}, {"Direct", testDirect}, {"Counters", testCounters},
		{"EngineKilled", testEngineKilled}, {"EventsAfterRestart", testEventsAfterRestart}, {"Drain", testDrain}, {"Balance", testBalance},
		{"OtherBlockSize", testOtherBlockSize}, {"EventsOtherBlockSize", testEventsOtherBlockSize}, {"ShimKilled", testShimKilled},
	} {
		if !t.Run(part.name, part.test) {
			t.FailNow()
		}
	}
}

// awaitFirst starts the first worker where no part before has.
func awaitFirst(t *testing.T) {
	t.Helper()
	if first == nil {
		first = the.startWorker(t, "gpu-1", "gpus", model, blockSize, nil)
	}
	first.awaitReady(t)
}

func testStart(t *testing.T) {
	awaitFirst(t)
	log := first.text()
	for _, state := range []string{"STATE_STARTING", "STATE_READY"} {
		if !strings.Contains(log, "state="+state) && !strings.Contains(log, `"state":"`+state) {
			t.Errorf("the log does not tell %s", state)
		}
	}
	// The probe is journaled before the engine's first counters, and those before any request.
	probes := the.recorded(ofKind("worker/gpu-1", usage.KindProbe))
	engines := the.recorded(ofKind("worker/gpu-1", usage.KindEngine))
	if len(probes) == 0 || len(engines) == 0 || engines[0].Engine.Moment != usage.MomentFirst || probes[0].Sequence > engines[0].Sequence {
		t.Fatalf("probes %v, engine %v", probes, engines)
	}
	p, e := probes[0], engines[0].Engine
	if p.GetCompletionTokens() != 1 || p.GetPromptTokens() < 1 || p.Outcome != usage.OutcomeComplete || p.EngineEpoch != engines[0].EngineEpoch {
		t.Errorf("the probe's record: %v", p)
	}
	if e.GetPromptTokens() != p.GetPromptTokens() || e.GetCompletionTokens() != 1 {
		t.Errorf("the engine has counted %v, and the probe %v", e, p)
	}
	if !strings.Contains(first.page("/metrics"), `spokegate_worker_state{state="ready"} 1`) {
		t.Error("the metrics do not say that it is ready")
	}
}

func testAnswers(t *testing.T) {
	whole := the.ask(t.Context(), map[string]any{"messages": words("one"), "max_tokens": 7, "ignore_eos": true})
	if whole.status != http.StatusOK || !strings.Contains(whole.body, `"completion_tokens":7`) {
		t.Fatalf("%d %s", whole.status, whole.body)
	}
	streamed := the.ask(t.Context(), map[string]any{"messages": words("two"), "max_tokens": 9, "ignore_eos": true, "stream": true})
	if !strings.HasSuffix(streamed.body, "data: [DONE]\n\n") || strings.Contains(streamed.body, `"usage":{`) {
		t.Errorf("a stream whose client asked for no usage: %s", tail(streamed.body))
	}
	asked := the.ask(t.Context(), map[string]any{"messages": words(strings.Repeat("a long prompt that fills blocks ", 40)), "max_tokens": 5, "ignore_eos": true,
		"stream": true, "stream_options": map[string]any{"include_usage": true}})
	again := the.ask(t.Context(), map[string]any{"messages": words(strings.Repeat("a long prompt that fills blocks ", 40)), "max_tokens": 5, "ignore_eos": true})
	for admission, want := range map[string]int64{whole.admission: 7, streamed.admission: 9, asked.admission: 5, again.admission: 5} {
		door, shim := usageOf(t, admission), servedOf(t, admission)
		if door.GetCompletionTokens() != want || shim.GetCompletionTokens() != want || door.GetPromptTokens() != shim.GetPromptTokens() {
			t.Errorf("%s: want %d tokens; the door has %v, the shim %v", admission, want, door, shim)
		}
		if shim.EngineEpoch == "" || shim.CountedFrom != usage.CountedEngine {
			t.Errorf("served: %v", shim)
		}
	}
	if c := servedOf(t, again.admission).GetCachedTokens(); c < blockSize {
		t.Errorf("the prompt came again, and %d of its tokens were cached", c)
	}
}

// longAnswer is in tokens; it takes many seconds.
const longAnswer = 3900

// beginLong begins a stream of a long answer, and returns when some of it has come.
func beginLong(t *testing.T, ctx context.Context, prompt string) *http.Response {
	t.Helper()
	resp, err := the.begin(ctx, map[string]any{"messages": words(prompt), "max_tokens": longAnswer, "ignore_eos": true, "stream": true})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for n := 0; n < len(buf); {
		read, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		n += read
	}
	return resp
}

// testCut: a client that leaves in the middle stops the engine, and the shim knows what was generated until then.
func testCut(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := beginLong(t, ctx, "tell me much")
	admission := resp.Header.Get("X-Request-Id")
	leave()
	resp.Body.Close()
	shim := servedOf(t, admission)
	if shim.Outcome != usage.OutcomeClientCut || shim.GetCompletionTokens() == 0 || shim.GetCompletionTokens() >= longAnswer {
		t.Errorf("served: %v", shim)
	}
	eventually(t, patience, "the engine runs nothing", func() bool {
		return strings.Contains(first.page("/metrics"), `spokegate_worker_engine_requests{state="running"} 0`)
	})
}

// testDirect: nobody else reaches the engine. Its socket is in a folder that only this user enters.
func testDirect(t *testing.T) {
	folder := the.path("run/engine-gpu-1")
	info, err := os.Stat(folder)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", info, err)
	}
	// torch's own groups listen on TCP: on loopback, and not for requests.
	for _, at := range listening(t, first.engineProcesses()) {
		if !strings.HasPrefix(at, "127.0.0.1:") {
			t.Errorf("the engine listens at %s", at)
		}
		client := http.Client{Timeout: 2 * time.Second}
		if resp, err := client.Get("http://" + at + "/v1/models"); err == nil {
			resp.Body.Close()
			t.Errorf("the engine answers at %s: %d", at, resp.StatusCode)
		}
	}
	for _, name := range []string{"s", "inproc-kv", "inproc-replay"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode()&os.ModeSocket == 0 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if os.Getuid() == 0 {
		stranger := exec.Command("/bin/ls", "-l", filepath.Join(folder, "s"))
		stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := stranger.CombinedOutput(); err == nil || !strings.Contains(string(out), "denied") {
			t.Errorf("another user reaches the engine: %v %s", err, out)
		}
	}
}

// testCounters: while nothing runs the shim journals the engine's counters, and they are what it served and probed.
func testCounters(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a minute")
	}
	say("waiting up to a minute or two for an idle reading of the engine's counters")
	eventually(t, 2*patience, "the engine's counters of an idle moment", func() bool {
		return len(the.recorded(func(r *usagev1.Record) bool {
			return r.Source == "worker/gpu-1" && r.Engine.GetMoment() == usage.MomentIdle
		})) > 0
	})
	agree(t, "worker/gpu-1")
}

// agree holds the growth of the engine's counters between its first and its latest reading against what was journaled between
// them. Each cut may hide a few tokens: those that were on their way.
func agree(t *testing.T, source string) {
	t.Helper()
	epoch, from, to := "", int64(0), int64(0)
	var sum, fromP, toP, sumP, cuts int64
	for _, r := range the.recorded(func(r *usagev1.Record) bool { return r.Source == source }) {
		switch {
		case r.Kind == usage.KindEngine && r.Engine.Moment == usage.MomentFirst:
			epoch, from, fromP = r.EngineEpoch, r.Engine.GetCompletionTokens(), r.Engine.GetPromptTokens()
			to, toP, sum, sumP, cuts = from, fromP, 0, 0, 0
		case r.Kind == usage.KindEngine && r.Engine.Moment != usage.MomentLost:
			to, toP = r.Engine.GetCompletionTokens(), r.Engine.GetPromptTokens()
			if diff := (to - from) - sum; diff < 0 || diff > 16*cuts {
				t.Errorf("run %s: the engine generated %d tokens, %d are journaled, with %d cuts", epoch, to-from, sum, cuts)
			}
			if toP-fromP != sumP {
				t.Errorf("run %s: the engine took in %d tokens, %d are journaled", epoch, toP-fromP, sumP)
			}
		case r.EngineEpoch == epoch && (r.Kind == usage.KindServed || r.Kind == usage.KindProbe):
			sum, sumP = sum+r.GetCompletionTokens(), sumP+r.GetPromptTokens()
			if r.Outcome != usage.OutcomeComplete {
				cuts++
			}
		}
	}
	if epoch == "" || to == from {
		t.Errorf("%s: the engine's counters did not grow", source)
	}
	say("%s: the engine generated %d tokens in run %s, %d are journaled (%d cuts)", source, to-from, epoch, sum, cuts)
}

// testEngineKilled: the client of a running stream is told, the engine comes back in the same shim, as another run.
func testEngineKilled(t *testing.T) {
	before := the.recorded(ofKind("worker/gpu-1", usage.KindEngine))
	pids := first.engineProcesses()
	if len(pids) < 3 {
		t.Fatalf("a guard, vLLM and its core are expected: %v", pids)
	}
	resp := beginLong(t, t.Context(), "on and on")
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil { // below the guard: the API server
		t.Fatal(err)
	}
	got := the.read(resp, nil)
	if !strings.Contains(got.body, "upstream_cut") {
		t.Errorf("the client is not told: %v %s", got.err, tail(got.body))
	}
	if shim := servedOf(t, got.admission); shim.Outcome != usage.OutcomeUpstreamCut || shim.GetCompletionTokens() == 0 {
		t.Errorf("served: %v", shim)
	}
	eventually(t, patience, "what the engine had started is gone", func() bool { return len(alive(pids)) == 0 })
	eventually(t, patience, "the lost counters", func() bool {
		lost := the.recorded(func(r *usagev1.Record) bool { return r.Engine.GetMoment() == usage.MomentLost })
		return len(lost) == 1 && lost[0].EngineEpoch == before[0].EngineEpoch
	})
	startSecond(t)
	first.awaitReady(t)
	eventually(t, patience, "the first counters of another run", func() bool {
		return len(the.recorded(func(r *usagev1.Record) bool {
			return r.Source == "worker/gpu-1" && r.Engine.GetMoment() == usage.MomentFirst && r.EngineEpoch != before[0].EngineEpoch
		})) == 1
	})
}

// startSecond starts the second worker where no part before has.
func startSecond(t *testing.T) {
	t.Helper()
	if second != nil {
		return
	}
	second = the.startWorker(t, "gpu-2", "others", otherModel, 2*blockSize, []string{"-engine-loopback"})
}

// testDrain: `worker drain` under load. Whatever the door has admitted is answered whole.
func testDrain(t *testing.T) {
	const streams, drained = 12, 700
	answers := make([]answer, streams)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() {
			answers[i] = the.ask(t.Context(), map[string]any{"messages": words(fmt.Sprint("number ", i)), "max_tokens": drained, "ignore_eos": true, "stream": true})
		})
	}
	eventually(t, patience, "all streams run", func() bool {
		return strings.Contains(first.page("/metrics"), fmt.Sprintf("spokegate_worker_running %d", streams))
	})
	drain := exec.Command(the.binary, "worker", "drain", "gpu-1", "-dir", the.dir)
	out, err := drain.CombinedOutput()
	say("drain: %s", strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "))
	if err != nil || !strings.HasSuffix(string(out), "ended\n") || !strings.Contains(string(out), "draining, ") {
		t.Errorf("worker drain: %v %s", err, out)
	}
	wait.Wait()
	for i, a := range answers {
		if a.status != http.StatusOK || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("stream %d: %d %v %s", i, a.status, a.err, tail(a.body))
		} else if n := servedOf(t, a.admission).GetCompletionTokens(); n != drained {
			t.Errorf("stream %d: %d tokens", i, n)
		}
	}
	<-first.done
	if first.err != nil {
		t.Errorf("the worker ended with %v\n%s", first.err, tail(first.text()))
	}
	if _, err := os.Stat(the.path("run/engine-gpu-1")); !os.IsNotExist(err) {
		t.Errorf("the engine's folder is there still: %v", err)
	}
	eventually(t, patience, "the last counters", func() bool {
		return len(the.recorded(func(r *usagev1.Record) bool { return r.Engine.GetMoment() == usage.MomentLast })) == 1
	})
	agree(t, "worker/gpu-1")
	if a := the.ask(t.Context(), map[string]any{"messages": words("anybody?")}); a.status != http.StatusServiceUnavailable {
		t.Errorf("without a worker: %d %s", a.status, a.body)
	}
}

// testBalance: the shipped proof finds nothing missing.
func testBalance(t *testing.T) {
	out, err := exec.Command(the.binary, "usage", "reconcile", "-dir", the.dir, "-settle", "0").CombinedOutput()
	say("reconcile: %s", strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n        "))
	if err != nil {
		t.Errorf("reconcile: %v", err)
	}
}

// testOtherBlockSize: an engine with other blocks, on loopback with an API key as older releases need it.
func testOtherBlockSize(t *testing.T) {
	startSecond(t)
	second.awaitReady(t)
	log := second.text()
	if !regexp.MustCompile(fmt.Sprintf(`block_size"?[=:]%d\b`, 2*blockSize)).MatchString(log) {
		t.Error("the log does not tell the engine's block size")
	}
	if !strings.Contains(log, "/invocations") {
		t.Error("the log does not name what the API key leaves open")
	}
	given := regexp.MustCompile(`--host (127\.0\.0\.1) --port (\d+) `).FindStringSubmatch(log)
	if given == nil {
		t.Fatal("the log does not tell where the engine listens")
	}
	address := net.JoinHostPort(given[1], given[2])
	if !slices.Contains(listening(t, second.engineProcesses()), address) {
		t.Errorf("the engine does not listen at %s", address)
	}
	body := `{"model":"tiny-other","prompt":"x","max_tokens":1}`
	for path, want := range map[string]int{"/v1/completions": http.StatusUnauthorized, "/v1/models": http.StatusUnauthorized, "/invocations": http.StatusOK} {
		resp, err := http.Post("http://"+address+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.StatusCode; got != want && !(path == "/v1/models" && got == http.StatusMethodNotAllowed) {
			t.Errorf("%s without the key: %d, want %d", path, got, want)
		}
	}
	for _, pid := range second.engineProcesses() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "api-key") {
			t.Errorf("the API key is among the arguments: %q", line)
		}
	}
}

// testShimKilled: kill -9 of the shim leaves no process of the engine behind, wherever they had gone.
func testShimKilled(t *testing.T) {
	pids := second.engineProcesses()
	if len(pids) < 3 {
		t.Fatalf("a guard, vLLM and its core are expected: %v", pids)
	}
	if err := syscall.Kill(second.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-second.done
	eventually(t, patience, "no process is left", func() bool { return len(alive(pids)) == 0 })
}

func usageOf(t *testing.T, admission string) *usagev1.Record {
	t.Helper()
	return oneOf(t, admission, usage.KindUsage)
}

func servedOf(t *testing.T, admission string) *usagev1.Record {
	t.Helper()
	return oneOf(t, admission, usage.KindServed)
}

func oneOf(t *testing.T, admission, kind string) (found *usagev1.Record) {
	t.Helper()
	eventually(t, patience, kind+" of "+admission, func() bool {
		all := the.recorded(func(r *usagev1.Record) bool { return r.Admission == admission && r.Kind == kind })
		if len(all) == 1 {
			found = all[0]
		}
		return len(all) == 1
	})
	return found
}

// listening are the TCP addresses on which processes listen.
func listening(t *testing.T, pids []int) (addresses []string) {
	t.Helper()
	owned := map[string]bool{}
	for _, pid := range pids {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil {
				owned[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
			}
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && owned[f[9]] {
				host, port, _ := strings.Cut(f[1], ":")
				n, _ := strconv.ParseUint(port, 16, 16)
				ip := net.IP{}
				if raw, err := strconv.ParseUint(host, 16, 32); err == nil && len(host) == 8 {
					ip = net.IPv4(byte(raw), byte(raw>>8), byte(raw>>16), byte(raw>>24))
				}
				addresses = append(addresses, fmt.Sprintf("%s:%d", ip, n))
			}
		}
	}
	return addresses
}
