package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"

	"github.com/spokegate/spokegate/enginemetrics"
)

// sglang is SGLang, by its documents; tested against scripted engines only.
//
// It has no Unix socket. Its API key stands in a file in the engine's folder, for arguments may be read by everybody.
var sglang = kind{
	dialect: sglangSpeech,
	command: []string{"python3", "-m", "sglang.launch_server"},
	reserved: []string{
		"--host", "--port", "--api-key", "--admin-api-key", "--model", "--model-path", "--served-model-name", "--config",
		"--enable-metrics", "--kv-events-config", "--grpc-mode", "--ssl-keyfile", "--ssl-certfile",
	},
	arguments: sglangArguments,
	// /health_generate would generate: the shim's own probe does that, and journals it.
	healthy: func(ctx context.Context, l *launched) (Description, error) {
		if err := l.up(ctx, "/health"); err != nil {
			return Description{}, err
		}
		return Description{BlockSize: sglangPage(l)}, nil
	},
	source: sglangSource,
	open:   "/health, /metrics and what its release leaves open",
}

var sglangSpeech = dialect{
	metrics:  "/metrics",
	families: enginemetrics.SGLang,
	progress: []*regexp.Regexp{
		regexp.MustCompile(`(Loading [a-zA-Z ]*checkpoint shards[^:]*: +\d+ ?%)`),
		regexp.MustCompile(`(Capturing batches[^:]*: +\d+ ?%)`),
		regexp.MustCompile(`(Load weight begin|Load weight end|Memory pool end|Capture cuda graph begin|Capture cuda graph end)`),
	},
	memory: []*regexp.Regexp{outOfMemory, regexp.MustCompile(`Not enough memory`)},
	fatal:  []*regexp.Regexp{rootCause},
	slow:   transportOfKV,
}

// sglangPage is its page size, in tokens: its own default of 1 would announce each token.
func sglangPage(l *launched) uint32 {
	if n, err := strconv.ParseUint(flagValue(l.cfg.Args, "--page-size"), 10, 32); err == nil {
		return uint32(n)
	}
	return 16
}

func sglangArguments(l *launched) (args, env []string, err error) {
	host, port, err := net.SplitHostPort(*l.address.Load())
	if err != nil {
		return nil, nil, err
	}
	config := l.path("config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "api-key: %q\n", l.key), 0o600); err != nil {
		return nil, nil, err
	}
	args = []string{"--config", config, "--model-path", l.cfg.Model, "--served-model-name", l.cfg.ServedName,
		"--host", host, "--port", port, "--enable-metrics"}
	if flagValue(l.cfg.Args, "--page-size") == "" {
		args = append(args, "--page-size", strconv.Itoa(int(sglangPage(l))))
	}
	if source := sglangSource(l); len(source.Events) > 0 {
		events, err := json.Marshal(map[string]any{"enable_kv_cache_events": true, "publisher": "zmq",
			"endpoint": source.Events[0], "replay_endpoint": source.Replay[0]})
		if err != nil {
			return nil, nil, err
		}
		args = append(args, "--kv-events-config", string(events))
	}
	return args, nil, nil
}

// sglangSource is one rank: with data-parallel attention it would count ports up, which a path has not.
func sglangSource(l *launched) KVSource {
	if n, err := strconv.Atoi(flagValue(l.cfg.Args, "--dp-size", "--data-parallel-size", "--dp")); err == nil && n > 1 {
		return KVSource{Why: "several data-parallel ranks of SGLang are not followed"}
	}
	return KVSource{Events: []string{"ipc://" + l.path("kv")}, Replay: []string{"ipc://" + l.path("replay")}}
}
