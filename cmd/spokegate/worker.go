package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spokegate/spokegate/worker"
)

// runWorker runs a shim before one engine.
func runWorker(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	name := f.String("name", "worker-1", "the worker's `name`, unique in its spoke")
	spoke := f.String("spoke", "local", "the spoke's `name`")
	endpoint := f.String("endpoint", "", "the `endpoint` of the policy that this worker serves")
	listen := f.String("listen", "127.0.0.1:0", "`address` where the door's Envoy reaches this worker")
	doors := f.String("doors", "", "comma-separated `addresses` of the doors to join: host:port, or unix:PATH")
	tokenFile := f.String("join-token-file", "", "`file` with the token to join with")
	dir := f.String("dir", ".spokegate", "`folder` for the spool")
	drain := f.Duration("drain", 30*time.Second, "how long running requests may go on after SIGTERM")
	engine := f.String("engine", "sim", "the engine to run: sim")
	attach := f.String("attach", "", "`URL` of an OpenAI-compatible engine that runs already, instead of -engine")
	models := f.String("model", "", "with -engine sim: comma-separated `names` that it serves; empty: any")
	rates := f.String("rates", "", "with -engine sim: rate `file`")
	ops := f.String("ops", "", "`address` of /metrics, /healthz and /readyz; with port 0 a free one, written into DIR/run/NAME.ops; empty: none")
	var collector, kafka string
	kafkaFlag(f, &kafka)
	otlpFlag(f, &collector)
	var level slog.Level
	levelFlag(f, &level)
	if err := parse(f, args); err != nil {
		return err
	}
	if *endpoint == "" || *doors == "" {
		return errors.New("-endpoint and -doors are required")
	}
	token, err := readToken(*tokenFile)
	if err != nil {
		return err
	}
	run := filepath.Join(*dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return err
	}
	log := newLog(os.Stderr, level, "worker", *name)
	reg := newRegistry()
	e, err := newEngine(*engine, *attach, worker.SimConfig{
		Folder: filepath.Join(run, "engine-"+*name), Models: splitNames(*models), RatesFile: *rates, Log: log})
	if err != nil {
		return err
	}
	journal, err := openJournal(*dir, "worker/"+*name, kafka, reg, log)
	if err != nil {
		return err
	}
	traces, err := newTracing(ctx, collector, "worker", *name, *spoke, log)
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		Name: *name, Spoke: *spoke, Endpoint: *endpoint, Listen: *listen, Doors: splitNames(*doors), JoinToken: token,
		Engine: e, Journal: journal.spool, DrainTimeout: *drain, Registerer: reg, Tracer: traces.tracer, Log: log,
	})
	if err != nil {
		return err
	}
	err = runWithOps(ctx, w.Run, func(ctx context.Context) error {
		h := workerHealth{status: w.Status, journal: journal.note, doors: splitNames(*doors)}
		return workerOps(ctx, *ops, filepath.Join(run, *name+".ops"), reg, h, log)
	})
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, journal.close(last), traces.stop(last))
}

func newEngine(kind, attach string, c worker.SimConfig) (worker.Engine, error) {
	if attach != "" {
		return worker.NewAttached(attach)
	}
	if kind != "sim" {
		return nil, fmt.Errorf("-engine %q: this release runs sim, and takes any other with -attach URL", kind)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.Binary = self
	return worker.NewSim(c), nil
}

func splitNames(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
