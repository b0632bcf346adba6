package enginemetrics

import (
	"math"
	"slices"
	"strconv"
)

// Families are the names of the metrics that count. Empty: the engine has none such.
type Families struct {
	Prompt, Completion string // counters: tokens taken in, and generated
	Running, Waiting   string // gauges: requests
	Cache              string // gauge: share of the KV blocks in use, 0 to 1
	Preemptions        string // counter, or gauge that grows
	TransferTime       string // histogram: seconds of a transfer of KV blocks
	TransferBytes      string // histogram: bytes of one
	TransferFailed     string // counter
	Config             string // gauge: its labels block_size and num_gpu_blocks, of each rank
}

// Kinds of engines, by their own documents; VLLM as the real 0.32 says it.
var (
	VLLM = Families{
		Prompt: "vllm:prompt_tokens_total", Completion: "vllm:generation_tokens_total",
		Running: "vllm:num_requests_running", Waiting: "vllm:num_requests_waiting",
		Cache: "vllm:kv_cache_usage_perc", Preemptions: "vllm:num_preemptions_total",
		TransferTime: "vllm:nixl_xfer_time_seconds", TransferBytes: "vllm:nixl_bytes_transferred",
		TransferFailed: "vllm:nixl_num_failed_transfers_total", Config: "vllm:cache_config_info",
	}
	SGLang = Families{
		Prompt: "sglang:prompt_tokens_total", Completion: "sglang:generation_tokens_total",
		Running: "sglang:num_running_reqs", Waiting: "sglang:num_queue_reqs",
		Cache: "sglang:token_usage", Preemptions: "sglang:num_retractions_total",
	}
	TRTLLM = Families{Waiting: "trtllm_num_requests_waiting", Cache: "trtllm_kv_cache_utilization"}
	Sim    = Families{
		Prompt: "spokegate_sim_prompt_tokens_total", Completion: "spokegate_sim_generation_tokens_total",
		Running: "spokegate_sim_requests_running", Waiting: "spokegate_sim_requests_waiting",
	}
)

var kinds = []Families{VLLM, SGLang, TRTLLM, Sim}

// started tells since when a process of Python, Go or Java runs.
const started = "process_start_time_seconds"

// Known are all names that engines count by.
var Known = func() Names {
	names := Names{started: true}
	for _, f := range kinds {
		for _, n := range []string{f.Prompt, f.Completion, f.Running, f.Waiting, f.Cache, f.Preemptions, f.TransferFailed, f.Config} {
			names[n] = true
		}
		for _, n := range []string{f.TransferTime, f.TransferBytes} {
			names[n+"_sum"], names[n+"_count"] = n != "", n != ""
		}
	}
	delete(names, "")
	return names
}()

// Recognise finds whose page it is, where nobody said of which kind the engine is; ok is false where it is nobody's.
func Recognise(page Page) (f Families, ok bool) {
	for _, f := range kinds {
		if len(page[f.first()]) > 0 {
			return f, true
		}
	}
	return Families{}, false
}

// first is the name that tells a kind: the one that it always counts.
func (f Families) first() string {
	if f.Prompt != "" {
		return f.Prompt
	}
	return f.Waiting
}

// Counters is what an engine says of itself at a moment. A pointer that is nil: it does not say.
type Counters struct {
	Prompt, Completion *int64
	Running, Waiting   *int64
	Cache              *float64 // 0 to 1
	Preemptions        *int64
	Transfers          int64 // of KV blocks: how many, how long in all, and how much; failed ones
	TransferTime       float64
	TransferBytes      float64
	TransferFailed     int64
	BlockSize          uint32  // tokens; 0: it does not say
	Blocks             uint64  // of all ranks' devices; 0: it does not say
	Started            float64 // when its process did, in Unix seconds; 0: it does not say
	// Ranks are the requests and the share of each data-parallel rank, in their order; nil: there is one, or they are not told apart.
	Ranks []Counters
}

// Read takes what counts out of a page. Engines with several ranks or models have a line of each: they add up, but for shares,
// of which the largest counts.
func (f Families) Read(page Page) Counters {
	var c Counters
	c.Prompt, c.Completion = page.total(f.Prompt), page.total(f.Completion)
	c.Running, c.Waiting = page.total(f.Running), page.total(f.Waiting)
	c.Preemptions = page.total(f.Preemptions)
	for _, s := range page[f.Cache] {
		if v := s.Value; !math.IsNaN(v) && (c.Cache == nil || v > *c.Cache) {
			c.Cache = &v
		}
	}
	c.Transfers, c.TransferTime = page.histogram(f.TransferTime)
	_, c.TransferBytes = page.histogram(f.TransferBytes)
	if n := page.total(f.TransferFailed); n != nil {
		c.TransferFailed = *n
	}
	c.BlockSize, c.Blocks = page.config(f.Config)
	if at := page[started]; len(at) > 0 && at[0].Value > 0 && !math.IsInf(at[0].Value, 0) {
		c.Started = at[0].Value
	}
	c.Ranks = f.ranks(page)
	return c
}

// ranks tells apart what has a label engine, as vLLM's samples have: the ranks' numbers, from 0 on.
func (f Families) ranks(page Page) []Counters {
	n := len(page[f.Running])
	if n < 2 || n > maxRanks {
		return nil
	}
	all := make([]Counters, n)
	for _, s := range page[f.Running] {
		rank, err := strconv.Atoi(s.Label("engine"))
		if err != nil || rank < 0 || rank >= n || all[rank].Running != nil {
			return nil // of several models, say
		}
		of := Page{}
		for _, name := range []string{f.Running, f.Waiting, f.Cache} {
			for _, o := range page[name] {
				if o.Label("engine") == s.Label("engine") {
					of[name] = append(of[name], o)
				}
			}
		}
		if len(of[f.Running]) > 1 {
			return nil
		}
		all[rank] = Families{Running: f.Running, Waiting: f.Waiting, Cache: f.Cache}.Read(of)
		if all[rank].Running == nil {
			return nil
		}
	}
	return all
}

// maxRanks bounds what is told apart.
const maxRanks = 64

// total adds samples up; nil where the page has none, or they make no number.
func (p Page) total(name string) *int64 {
	all := p[name]
	if len(all) == 0 {
		return nil
	}
	var sum float64
	for _, s := range all {
		sum += s.Value
	}
	if !(sum >= 0 && sum <= 1<<53) {
		return nil
	}
	n := int64(math.Round(sum))
	return &n
}

func (p Page) histogram(name string) (count int64, sum float64) {
	if n := p.total(name + "_count"); n != nil {
		count = *n
	}
	for _, s := range p[name+"_sum"] {
		if !math.IsNaN(s.Value) {
			sum += s.Value
		}
	}
	return count, sum
}

// config reads the size of a block, and how many there are: each rank has a line.
func (p Page) config(name string) (blockSize uint32, blocks uint64) {
	for _, s := range p[name] {
		if n, err := strconv.ParseUint(s.Label("block_size"), 10, 32); err == nil {
			blockSize = uint32(n)
		}
		if n, err := strconv.ParseUint(s.Label("num_gpu_blocks"), 10, 32); err == nil {
			blocks += n
		}
	}
	return blockSize, blocks
}

// Label is the value of a label; empty: it has none such.
func (s Sample) Label(name string) string {
	if i := slices.IndexFunc(s.Labels, func(l Label) bool { return l.Name == name }); i >= 0 {
		return s.Labels[i].Value
	}
	return ""
}

// SameTokens says whether two readings have counted the same.
func (c Counters) SameTokens(d Counters) bool {
	return same(c.Prompt, d.Prompt) && same(c.Completion, d.Completion)
}

func same(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// Backwards says that counting has begun anew since an earlier reading.
func (c Counters) Backwards(before Counters) bool {
	return less(c.Prompt, before.Prompt) || less(c.Completion, before.Completion)
}

func less(a, b *int64) bool { return a != nil && b != nil && *a < *b }

// Still says that nothing runs in the engine, as far as it says.
func (c Counters) Still() bool {
	return (c.Running == nil || *c.Running == 0) && (c.Waiting == nil || *c.Waiting == 0)
}

// SaysLoad says whether the engine tells anything of its load.
func (c Counters) SaysLoad() bool { return c.Running != nil || c.Waiting != nil || c.Cache != nil }

// CachePermille is the share of the KV blocks in use, as 0 to 1000.
func (c Counters) CachePermille() uint32 {
	if c.Cache == nil {
		return 0
	}
	return uint32(math.Round(1000 * min(max(*c.Cache, 0), 1)))
}

// Uint32 is a number within its bounds; unknown is 0.
func Uint32(n *int64) uint32 {
	if n == nil {
		return 0
	}
	return uint32(min(max(*n, 0), math.MaxUint32))
}
