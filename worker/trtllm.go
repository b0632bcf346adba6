package worker

import (
	"context"
	"net"
	"regexp"
	"strconv"
)

// trtllm is TensorRT-LLM's trtllm-serve, by its documents; tested against scripted engines only.
//
// It has neither a Unix socket nor an API key: whoever has a login on the machine reaches it. Its /metrics is a JSON of
// iterations that reading empties, and is left to whoever wants it; so there are no counters to balance against, and no
// progress but the shim's own probe. Its KV events are polled, which the shim does not do.
var trtllm = kind{
	dialect: trtllmSpeech,
	command: []string{"trtllm-serve", "serve"},
	reserved: []string{
		"--host", "--port", "--served-model-name", "--grpc", "--metadata-server-config-file",
	},
	arguments: func(l *launched) (args, env []string, err error) {
		host, port, err := net.SplitHostPort(*l.address.Load())
		return []string{l.cfg.Model, "--served_model_name", l.cfg.ServedName, "--host", host, "--port", port}, nil, err
	},
	healthy: func(ctx context.Context, l *launched) (Description, error) {
		n, _ := strconv.ParseUint(flagValue(l.cfg.Args, "--tokens-per-block"), 10, 32)
		return Description{BlockSize: uint32(n)}, l.up(ctx, "/health")
	},
	source: func(*launched) KVSource {
		return KVSource{Why: "TensorRT-LLM's events are polled, which is not done yet"}
	},
	open: "every path: it knows no API key",
}

var trtllmSpeech = dialect{
	progress: []*regexp.Regexp{
		regexp.MustCompile(`(Loading [a-zA-Z ]*(?:weights|safetensors)[^:]*: +\d+ ?%)`),
	},
	memory: []*regexp.Regexp{outOfMemory},
	fatal:  []*regexp.Regexp{rootCause, regexp.MustCompile(`\[TensorRT-LLM\]\[ERROR\] \S.*`)},
	slow:   transportOfKV,
}
