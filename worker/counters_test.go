package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the doors are told of an engine's load; nothing where it says nothing.
func TestLoad(t *testing.T) {
	if l := loadOf(counters{Prompt: new(int64(5))}); l != nil {
		t.Errorf("%v", l)
	}
	l := loadOf(counters{Running: new(int64(5)), Cache: new(0.9996), Preemptions: new(int64(7))})
	if l == nil || l.Running != 5 || l.Waiting != 0 || l.CacheUsedPermille != 1000 || l.Preemptions != 7 {
		t.Errorf("%v", l)
	}
}

// What real engines log, and what it means.
func TestLogs(t *testing.T) {
	type heard struct{ Progress, Degraded, Cause, Line string }
	for line, want := range map[string]heard{
		`(EngineCore pid=7) Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:03<00:05]`:                                                                      {Progress: "loading safetensors checkpoint shards: 40%"},
		`(Worker pid=28669) INFO 11-29 19:18:48 [cpu_model_runner.py:68] Starting to load model /models/tiny...`:                                                            {Progress: "starting to load model"},
		`(EngineCore pid=9) INFO [core.py:402] init engine (profile, create kv cache, warmup model) took 0.12 s`:                                                            {Progress: "init engine"},
		`Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  33%|███▎      | 22/67`:                                                                                   {Progress: "capturing cuda graphs (mixed prefill-decode, piecewise): 33%"},
		`torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.`:                                                                                           {Cause: "memory", Line: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."},
		`(EngineCore pid=9) ERROR ValueError: To serve at least one request ... is larger than the available KV cache memory (1.0 GiB)`:                                     {Cause: "memory", Line: "larger than the available KV cache memory (1.0 GiB)"},
		`(EngineCore pid=1) ERROR 11-29 [core.py:1] RuntimeError: CUDA error: an illegal memory access was encountered`:                                                     {Cause: "crash", Line: "RuntimeError: CUDA error: an illegal memory access was encountered"},
		`[1700000000.1] [node:123 :0] ucp_worker.c:1855 UCX  INFO  ucp_context_0 inter-node cfg#2 tag(tcp/eth0) rma(tcp/eth0)`:                                              {Degraded: "kv-transfer: tcp"},
		`[1700000000.1] [node:123 :0] ucp_worker.c:1855 UCX  INFO  ucp_context_0 inter-node cfg#2 tag(rc_mlx5/mlx5_0:1) rma(rc_mlx5/mlx5_0)`:                                {},
		`WARNING NIXL: RDMA device not found, falling back to TCP`:                                                                                                          {Degraded: "kv-transfer: tcp"},
		`(APIServer pid=2) WARNING 11-29 20:48:22 [system_utils.py:1] Found ulimit of 20000. This can cause fd limit errors like "OSError: [Errno 24] Too many open files"`: {},
		`INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK`:                                                                                               {},
	} {
		c := vllmSpeech.causeOf(line)
		if diff := cmp.Diff(want, heard{vllmSpeech.progressOf(line), vllmSpeech.degradedOf(line), c.what, c.line}); diff != "" {
			t.Errorf("%s\n%s", line, diff)
		}
	}
}

// The first cause is the root, but for memory. What was survived long ago is none.
func TestEarsForgetWhatWasSurvived(t *testing.T) {
	e := ears{reads: vllmSpeech, changed: make(chan struct{}, 1)}
	line := func() string { _, _, c := e.now(); return c.line }
	e.hear("ValueError: one")
	e.hear("RuntimeError: two")
	if got := line(); got != "ValueError: one" {
		t.Error(got)
	}
	e.causeAt = e.causeAt.Add(-2 * causeMost)
	if got := line(); got != "" {
		t.Error(got)
	}
	e.hear("RuntimeError: three")
	e.hear("torch.OutOfMemoryError: four")
	e.hear("RuntimeError: five")
	if got := line(); got != "torch.OutOfMemoryError: four" {
		t.Error(got)
	}
}
