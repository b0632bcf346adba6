package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spokegate/spokegate/worker"
)

// engineFlags say which engine a shim runs or watches, and how closely.
type engineFlags struct {
	engine, attach, attachKind string
	model, servedName, rates   string
	command                    string
	loopback                   bool
	start, stop                time.Duration
	crashes                    int
	window                     time.Duration
	hung, probe                time.Duration
	gpu                        string
	args                       []string // behind --
}

func (e *engineFlags) register(f *flag.FlagSet) {
	f.StringVar(&e.engine, "engine", "sim", "the `engine` to run: sim, vllm, sglang or trtllm; its own arguments follow --")
	f.StringVar(&e.attach, "attach", "", "`URL` of an OpenAI-compatible engine that runs already, instead of -engine")
	f.StringVar(&e.attachKind, "engine-kind", "", "with -attach: what the engine is (`kind`: sim, vllm, sglang, trtllm); empty: known by its metrics")
	f.StringVar(&e.model, "model", "", "the `folder` of the model that the engine loads, or its name; with -engine sim: comma-separated names that it serves; empty: any")
	f.StringVar(&e.servedName, "served-name", "", "what requests call the model: a `name` of the policy; empty: as -model")
	f.StringVar(&e.rates, "rates", "", "with -engine sim: rate `file`")
	f.StringVar(&e.command, "engine-command", "", "the `command` that starts the engine, words apart by spaces; empty: as on its machines")
	f.BoolVar(&e.loopback, "engine-loopback", false, "the engine listens on 127.0.0.1 with a random API key: for releases of vLLM without Unix sockets")
	f.DurationVar(&e.start, "start-timeout", 30*time.Minute, "how long the engine may take to be up")
	f.DurationVar(&e.stop, "stop-timeout", 30*time.Second, "how long the engine may take to end after SIGTERM, when nothing runs any more")
	f.IntVar(&e.crashes, "crashes", 5, "after so many failures within -crash-window the engine is given up; 0: never. The simulator never is")
	f.DurationVar(&e.window, "crash-window", 10*time.Minute, "see -crashes")
	f.DurationVar(&e.hung, "hung", time.Minute, "how long no token may come while requests wait, before the engine must answer a probe within the same time")
	f.DurationVar(&e.probe, "probe", time.Minute, "how long the engine may stand without a token before it is asked for one; 0: never")
	f.StringVar(&e.gpu, "gpu-metrics", "", "`URL` of the metrics of a DCGM exporter on this machine; empty: none")
}

// watch is how closely the engine is looked at.
func (e *engineFlags) watch() (worker.Watch, error) {
	w := worker.Watch{Hung: e.hung, Idle: e.probe}
	if e.probe == 0 {
		w.Idle = -1
	}
	switch {
	case e.hung <= 0:
		return w, errors.New("-hung: a time above 0 expected")
	case e.probe < 0:
		return w, errors.New("-probe: a time expected, or 0 for none")
	case e.gpu == "":
		return w, nil
	}
	u, err := url.Parse(e.gpu)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return w, fmt.Errorf("-gpu-metrics %q: http://HOST:PORT/metrics expected", e.gpu)
	}
	w.GPU = u
	return w, nil
}

// ranks is how many data-parallel ranks doors choose among: as somebody said, or else as the engine's own arguments do, or as many
// as publish their blocks.
func (e *engineFlags) ranks(said, publish int) (int, error) {
	kind := e.engine
	if e.attach != "" {
		kind = e.attachKind
	}
	switch {
	case said > 1 && (kind == "sglang" || kind == "trtllm"):
		return 0, fmt.Errorf("-ranks: %s takes no rank from a request", kind)
	case said != 0:
		return said, nil
	case e.attach != "" && (kind == "" || kind == "vllm"):
		return publish, nil
	case e.attach == "" && kind == "vllm":
		return worker.RanksOf(e.args), nil
	}
	return 0, nil
}

// build makes the engine. Its folder is run/engine-NAME.
func (e *engineFlags) build(run, name string, ranks int, log *slog.Logger) (worker.Engine, error) {
	if e.attach != "" {
		if len(e.args) > 0 || e.command != "" {
			return nil, errors.New("arguments of an engine, and -attach: that one runs already")
		}
		return worker.NewAttached(e.attach, e.attachKind)
	}
	if e.attachKind != "" {
		return nil, errors.New("-engine-kind goes with -attach")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(run, "engine-"+name)
	if e.engine == "sim" {
		if len(e.args) > 0 {
			return nil, fmt.Errorf("%q: the simulator takes no arguments of its own", e.args[0])
		}
		return worker.NewSim(worker.SimConfig{Binary: self, Folder: folder, Models: splitNames(e.model), RatesFile: e.rates, KVEvents: true, Ranks: ranks, Log: log}), nil
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	made, err := worker.NewLaunched(worker.LaunchConfig{
		Kind: e.engine, Guard: []string{self, "guard"}, Folder: folder, Command: strings.Fields(e.command), Model: e.model,
		ServedName: e.servedName, Args: e.args, Loopback: e.loopback, StartTimeout: e.start, StopTimeout: e.stop,
		Crashes: e.crashes, CrashWindow: e.window, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("-engine: %w", err)
	}
	return made, nil
}

// runGuard is what a shim starts its engine below; not for people.
func runGuard(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("a command is needed: a worker runs this by itself")
	}
	os.Exit(worker.Guard(args, os.Stdin))
	return nil
}

func splitNames(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
