package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spokegate/spokegate/enginemetrics"
)

// vllm is vLLM 0.24 and newer; tested with the real 0.32.
var vllm = kind{
	dialect: vllmSpeech,
	command: []string{"vllm", "serve"},
	sockets: true,
	reserved: []string{
		"--uds", "--host", "--port", "--api-key", "--model", "--served-model-name", "--config", "--kv-events-config",
		"--disable-log-stats", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--root-path", "--grpc-port", "--headless",
		"--data-parallel-multi-port-external-lb", "--data-parallel-start-rank", "--data-parallel-rank",
	},
	arguments: vllmArguments,
	healthy: func(ctx context.Context, l *launched) (Description, error) {
		if err := l.up(ctx, "/health"); err != nil {
			return Description{}, err
		}
		return vllmBlocks(ctx, l)
	},
	source: vllmSource,
	open:   "/tokenize, /detokenize, /invocations (which generates), /metrics, /pooling and all else that is not below /v1, /v2 or /inference",
}

var vllmSpeech = dialect{
	metrics:  "/metrics",
	families: enginemetrics.VLLM,
	progress: []*regexp.Regexp{
		regexp.MustCompile(`(Loading [a-zA-Z ]*(?:checkpoint shards|weights)[^:]*: +\d+ ?%)`),
		regexp.MustCompile(`(Capturing CUDA graphs?[^:]*: +\d+ ?%)`),
		regexp.MustCompile(`(Downloading [^:]*: +\d+ ?%)`),
		regexp.MustCompile(`(Starting to load model|Loading weights took|Loading drafter model|Model loading took|Dynamo bytecode transform|Compiling a graph|torch\.compile (?:takes|took)|Initializing a V1 LLM engine|Capturing CUDA graphs?|GPU KV cache size|CPU KV cache size|init engine)\b`),
	},
	memory: []*regexp.Regexp{outOfMemory, regexp.MustCompile(`Free memory on device .* less than|larger than the (?:maximum number of tokens|available KV cache memory)`)},
	fatal:  []*regexp.Regexp{rootCause},
	slow:   transportOfKV,
}

// transportOfKV finds a means that is not RDMA, NVLink or shared memory, in the words of NIXL, UCX and Mooncake.
var transportOfKV = []*regexp.Regexp{
	// UCX with UCX_LOG_LEVEL=info: "ucp_context_0 inter-node cfg#2 tag(tcp/eth0)"; a list with RDMA in it is well.
	regexp.MustCompile(`(?:inter-node|remote memory) cfg#\d+ [a-z_ ]*\((tcp)/[^ )]*(?: tcp/[^ )]*)*\)`),
	regexp.MustCompile(`(?i)(?:nixl|ucx|mooncake|kv (?:transfer|connector)).*\b(?:fall(?:s|ing)?[ -]?back|fell back|falling back)\b.*\b(tcp|sockets?)\b`),
	regexp.MustCompile(`(?i)\b(?:rdma|ibverbs|infiniband|efa)\b.*\b(?:not (?:found|available|supported)|unavailable|no (?:usable )?devices?)\b.*\b(tcp)\b`),
	regexp.MustCompile(`(?i)mooncake.*(?:transport|protocol)\W+(tcp)\b`),
}

func vllmArguments(l *launched) (args, env []string, err error) {
	args = []string{"--model", l.cfg.Model, "--served-model-name", l.cfg.ServedName, "--enable-prompt-tokens-details"}
	if l.onSocket() {
		args = append(args, "--uds", *l.address.Load())
	} else {
		host, port, _ := strings.Cut(*l.address.Load(), ":")
		args = append(args, "--host", host, "--port", port)
		env = append(env, "VLLM_API_KEY="+l.key) // not in the arguments, which everybody may read
	}
	if vllmAlone(l) {
		env = append(env, "VLLM_HOST_IP=127.0.0.1")
	}
	if source := vllmSource(l); len(source.Events) > 0 {
		config, err := json.Marshal(map[string]any{"enable_kv_cache_events": true, "publisher": "zmq",
			"endpoint": source.Events[0], "replay_endpoint": source.Replay[0]})
		if err != nil {
			return nil, nil, err
		}
		args = append(args, "--enable-prefix-caching", "--kv-events-config", string(config))
	}
	return args, env, nil
}

// vllmAlone says that the engine runs on this machine alone and nobody said where its parts meet: then torch's groups need not
// listen where other machines reach them.
func vllmAlone(l *launched) bool {
	env := l.cfg.Env
	if env == nil {
		env = os.Environ()
	}
	for _, variable := range env {
		if strings.HasPrefix(variable, "VLLM_HOST_IP=") {
			return false
		}
	}
	for _, flag := range []string{"--nnodes", "--node-rank", "--master-addr", "--data-parallel-address", "--data-parallel-size-local"} {
		if flagValue(l.cfg.Args, flag) != "" {
			return false
		}
	}
	return flagValue(l.cfg.Args, "--distributed-executor-backend") != "ray"
}

// vllmSource is a pair of sockets a rank in the engine's folder. The engine adds a suffix of its own for the ranks above 0,
// to an address that has "inproc" in it, and refuses an ipc:// one that has not.
func vllmSource(l *launched) KVSource {
	if slices.Contains(l.cfg.Args, "--no-enable-prefix-caching") {
		return KVSource{Why: "its prefix cache is off (--no-enable-prefix-caching)"}
	}
	var s KVSource
	for rank := range max(RanksOf(l.cfg.Args), 1) {
		suffix := ""
		if rank > 0 {
			suffix = fmt.Sprintf("_dp%d", rank)
		}
		s.Events = append(s.Events, "ipc://"+l.path("inproc-kv")+suffix)
		s.Replay = append(s.Replay, "ipc://"+l.path("inproc-replay")+suffix)
	}
	return s
}

// vllmBlocks reads what vllm:cache_config_info says.
func vllmBlocks(ctx context.Context, l *launched) (Description, error) {
	page, err := scrape(ctx, l.Base(), l.probe, "/metrics", enginemetrics.Known)
	if err != nil {
		return Description{}, err
	}
	if len(page[enginemetrics.VLLM.Config]) == 0 {
		return Description{}, errors.New("/metrics has no vllm:cache_config_info yet")
	}
	c := enginemetrics.VLLM.Read(page)
	return Description{BlockSize: c.BlockSize, Blocks: c.Blocks}, nil
}
