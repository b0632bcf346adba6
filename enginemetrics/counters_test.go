package enginemetrics

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A page of the real vLLM 0.32.
func TestVLLM(t *testing.T) {
	page, err := os.ReadFile("testdata/vllm-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(bytes.NewReader(page), Known)
	if err != nil {
		t.Fatal(err)
	}
	families, ok := Recognise(m)
	if !ok || families != VLLM {
		t.Fatalf("recognised as %+v", families)
	}
	c := families.Read(m)
	if *c.Prompt != 180 || *c.Completion != 44 || *c.Running != 0 || *c.Waiting != 0 || *c.Cache != 0 || *c.Preemptions != 0 {
		t.Errorf("%d %d %d %d %g %d", *c.Prompt, *c.Completion, *c.Running, *c.Waiting, *c.Cache, *c.Preemptions)
	}
	if !c.Still() || !c.SaysLoad() || c.CachePermille() != 0 {
		t.Errorf("%+v", c)
	}
	if c.BlockSize != 32 || c.Blocks != 131072 || c.Started != 1.79594981379e+09 {
		t.Errorf("blocks %d of %d tokens, since %v", c.Blocks, c.BlockSize, c.Started)
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
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="50"} 1.0
`
	m, err := Read(strings.NewReader(page), Known)
	if err != nil {
		t.Fatal(err)
	}
	c := VLLM.Read(m)
	if c.Completion != nil || c.Waiting != nil || c.Preemptions != nil || *c.Prompt != 1_500_007 || *c.Running != 5 || c.Still() {
		t.Errorf("%+v", c)
	}
	if c.CachePermille() != 1000 || c.BlockSize != 16 || c.Blocks != 150 || c.Started != 0 {
		t.Errorf("%+v", c)
	}
	if len(c.Ranks) != 2 || *c.Ranks[0].Running != 2 || c.Ranks[0].CachePermille() != 250 || *c.Ranks[1].Running != 3 || c.Ranks[1].Waiting != nil {
		t.Errorf("ranks %+v", c.Ranks)
	}
	if c.Transfers != 4 || c.TransferTime != 7.2 || c.TransferBytes != 3.2e7 {
		t.Errorf("%+v", c)
	}
}

// Ranks are told apart only where all of them have a number of their own.
func TestRanksThatAreNone(t *testing.T) {
	for _, page := range []string{
		`vllm:num_requests_running{engine="0"} 2`,
		"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"0\",model_name=\"b\"} 2",
		"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"2\"} 2",
		"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"-1\"} 2",
		"vllm:num_requests_running{model_name=\"a\"} 2\nvllm:num_requests_running{model_name=\"b\"} 2",
		"vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} NaN",
	} {
		m, err := Read(strings.NewReader(page), Known)
		if c := VLLM.Read(m); err != nil || c.Ranks != nil {
			t.Errorf("%s: ranks %+v, %v", page, c.Ranks, err)
		}
	}
}

// Each kind of engine is recognised by its own names, and by no other's.
func TestRecognise(t *testing.T) {
	for _, f := range kinds {
		m, err := Read(strings.NewReader(fmt.Sprintf("# TYPE %[1]s counter\n%[1]s 5\n", f.first())), Known)
		if err != nil {
			t.Fatal(err)
		}
		found, ok := Recognise(m)
		if !ok || found != f {
			t.Errorf("%s is taken for %+v", f.first(), found)
		}
		if c := found.Read(m); c.SaysLoad() != (f.Prompt == "") {
			t.Errorf("%+v", c)
		}
	}
	if _, ok := Recognise(nil); ok {
		t.Error("an empty page is somebody's")
	}
}

func TestCountersCompared(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		from, to        Counters
		same, backwards bool
	}{
		{Counters{}, Counters{}, true, false},
		{Counters{Prompt: n(5), Completion: n(1)}, Counters{Prompt: n(5), Completion: n(1)}, true, false},
		{Counters{Prompt: n(5)}, Counters{Prompt: n(6)}, false, false},
		{Counters{Prompt: n(5)}, Counters{Prompt: n(4)}, false, true},
		{Counters{Prompt: n(5), Completion: n(9)}, Counters{Prompt: n(6), Completion: n(8)}, false, true},
		{Counters{Prompt: n(5)}, Counters{}, false, false},
	} {
		if got := c.to.SameTokens(c.from); got != c.same {
			t.Errorf("%+v %+v: same %v", c.from, c.to, got)
		}
		if got := c.to.Backwards(c.from); got != c.backwards {
			t.Errorf("%+v %+v: backwards %v", c.from, c.to, got)
		}
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
		m, err := Read(bytes.NewReader(page), Known)
		if err != nil {
			return
		}
		for _, k := range kinds {
			c := k.Read(m)
			for _, n := range []*int64{c.Prompt, c.Completion, c.Running, c.Waiting, c.Preemptions, &c.Transfers, &c.TransferFailed} {
				if n != nil && *n < 0 {
					t.Errorf("%d", *n)
				}
			}
			if c.CachePermille() > 1000 || c.Started < 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}
