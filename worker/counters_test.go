package worker

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A page of the real vLLM 0.32.
func TestVLLMCounters(t *testing.T) {
	page, err := os.ReadFile("testdata/vllm-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	m, err := parseMetrics(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	families, ok := recognise(m)
	if !ok || families != vllmSpeech.families {
		t.Fatalf("recognised as %+v", families)
	}
	c := families.read(m)
	if *c.prompt != 180 || *c.completion != 44 || *c.running != 0 || *c.waiting != 0 || *c.cache != 0 || *c.preemptions != 0 {
		t.Errorf("%d %d %d %d %g %d", *c.prompt, *c.completion, *c.running, *c.waiting, *c.cache, *c.preemptions)
	}
	if l := c.load(); !c.still() || l == nil || l.Running != 0 || l.CacheUsedPermille != 0 {
		t.Errorf("%v", l)
	}
}

// Ranks and models add up, but for shares; what is absent or makes no sense is unknown and not 0.
func TestCountersAddUp(t *testing.T) {
	page := `
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 1.5e+06
vllm:prompt_tokens_total{engine="1"} 7
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total NaN
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.9996
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 2
vllm:num_requests_running{engine="1"} 3
# TYPE vllm:nixl_xfer_time_seconds histogram
vllm:nixl_xfer_time_seconds_bucket{le="+Inf"} 4
vllm:nixl_xfer_time_seconds_sum 7.2
vllm:nixl_xfer_time_seconds_count 4
# TYPE vllm:nixl_bytes_transferred histogram
vllm:nixl_bytes_transferred_bucket{le="+Inf"} 4
vllm:nixl_bytes_transferred_sum 3.2e+07
vllm:nixl_bytes_transferred_count 4
`
	m, err := parseMetrics(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	c := vllmSpeech.families.read(m)
	if c.completion != nil || c.waiting != nil || c.preemptions != nil || *c.prompt != 1_500_007 || *c.running != 5 {
		t.Errorf("%+v", c)
	}
	l := c.load()
	if l.Running != 5 || l.Waiting != 0 || l.CacheUsedPermille != 1000 {
		t.Errorf("%v", l)
	}
	if c.transfers != 4 || c.transferTime != 7.2 || c.transferBytes != 3.2e7 {
		t.Errorf("%+v", c)
	}
	if got := slowTransfers(counters{}, c); got != "0.00 GB/s" {
		t.Errorf("%q", got)
	}
}

// Each engine that we launch and count is recognised by its own names, and by no other's.
func TestRecognise(t *testing.T) {
	for _, d := range speeches() {
		page := fmt.Sprintf("# TYPE %s counter\n%s 5\n# TYPE %s counter\n%s 6\n", d.families.prompt, d.families.prompt, d.families.completion, d.families.completion)
		m, err := parseMetrics(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		found, ok := recognise(m)
		if !ok || found != d.families {
			t.Errorf("%s is taken for %+v", d.families.prompt, found)
		}
		if c := found.read(m); *c.prompt != 5 || *c.completion != 6 || c.load() != nil {
			t.Errorf("%+v", c)
		}
	}
	if _, ok := recognise(nil); ok {
		t.Error("an empty page is somebody's")
	}
}

// FuzzCounters: whatever an engine's page holds, nothing breaks, and no number is negative.
func FuzzCounters(f *testing.F) {
	page, err := os.ReadFile("testdata/vllm-metrics.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page)
	f.Add([]byte("# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total -1\n"))
	f.Add([]byte("vllm:prompt_tokens_total{a=\"b\"} +Inf 12\nvllm:kv_cache_usage_perc NaN"))
	f.Add([]byte("# TYPE vllm:nixl_xfer_time_seconds summary\nvllm:nixl_xfer_time_seconds_count 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		m, err := parseMetrics(bytes.NewReader(page))
		if err != nil {
			return
		}
		for _, d := range speeches() {
			c := d.families.read(m)
			for _, n := range []*int64{c.prompt, c.completion, c.running, c.waiting, c.preemptions} {
				if n != nil && *n < 0 {
					t.Errorf("%d", *n)
				}
			}
			_ = c.load()
			new(pressure).take(reading{counters: c}, nil)
		}
	})
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
