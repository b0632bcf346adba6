package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spokegate/spokegate/worker"
)

// workerFlags are a shim's whole configuration.
type workerFlags struct {
	name, spoke string
	endpoint    string
	ranks       int
	role        string
	listen      string
	advertise   string
	doors       string
	bodyLimit   int64
	tokenFile   string
	tls         tlsFlags
	dir         string
	turnAway    time.Duration
	drain       time.Duration
	engine      engineFlags
	kv          kvFlags
	ops         string
	collector   string
	kafka       kafkaFlags
	level       slog.Level
	said        said // all of it, as the page /about tells it
}

func (w *workerFlags) register(f *flag.FlagSet) {
	f.StringVar(&w.name, "name", "worker-1", "the worker's `name`, unique in its spoke")
	f.StringVar(&w.spoke, "spoke", "local", "the spoke's `name`")
	f.StringVar(&w.endpoint, "endpoint", "", "the `endpoint` of the policy that this worker serves")
	f.IntVar(&w.ranks, "ranks", 0, "data-parallel ranks of the engine, among which doors choose; 0: as its arguments say (-engine vllm), or as -kv-ranks (-attach), or one")
	f.StringVar(&w.role, "role", "", "what it does: prefill (computes prompts for others), decode (answers, and others may compute its prompts), or empty, both")
	f.StringVar(&w.listen, "listen", "127.0.0.1:0", "`address` where the door's Envoy reaches this worker")
	f.StringVar(&w.advertise, "advertise", "", "`ip:port` that doors are told, where it is another than -listen")
	f.Int64Var(&w.bodyLimit, "body-limit", 64<<20, "largest request body in `bytes`; at least the doors'")
	f.StringVar(&w.doors, "doors", "", "comma-separated `addresses` of the doors to join: host:port, unix:PATH, or dns:HOST:PORT for every address that the host has, looked up again and again")
	f.StringVar(&w.tokenFile, "join-token-file", "", "`file` with the token to join with; not needed where doors know this worker by its certificate")
	w.tls.register(f)
	f.StringVar(&w.dir, "dir", ".spokegate", "`folder` for the spool")
	f.DurationVar(&w.turnAway, "drain-delay", 2*time.Second, "how long after SIGTERM requests are still taken that doors had sent before they heard of it")
	f.DurationVar(&w.drain, "drain", 30*time.Second, "how long after that running requests may go on")
	w.engine.register(f)
	w.kv.register(f)
	f.StringVar(&w.ops, "ops", "", "`address` of /metrics, /healthz and /readyz; with port 0 a free one, written into DIR/run/NAME.ops; empty: none")
	w.kafka.register(f)
	otlpFlag(f, &w.collector)
	levelFlag(f, &w.level)
}

// runWorker runs a shim before one engine.
func runWorker(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "drain" {
		return runWorkerDrain(ctx, args[1:])
	}
	var flags workerFlags
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.register(f)
	args, flags.engine.args = splitArgs(args)
	if err := parse(f, args); err != nil {
		return err
	}
	if flags.endpoint == "" || flags.doors == "" {
		return errors.New("-endpoint and -doors are required")
	}
	if flags.turnAway < 0 || flags.drain < 0 {
		return errors.New("-drain-delay and -drain: want no negative time")
	}
	for _, d := range splitNames(flags.doors) {
		if _, _, err := worker.DoorHost(d); err != nil {
			return fmt.Errorf("-doors: %w", err)
		}
	}
	if err := flags.kafka.complete(); err != nil {
		return err
	}
	flags.said = sayFlags(f)
	if flags.engine.attach != "" { // an engine that it starts would inherit them
		coarseTimers()
	}
	token := ""
	if flags.tokenFile != "" || !flags.tls.files.Given() {
		var err error
		if token, err = readToken(flags.tokenFile); err != nil {
			return err
		}
	}
	return serveWorker(ctx, flags, token, newLog(os.Stderr, flags.level, "worker", flags.name))
}

// splitArgs takes the engine's own arguments off, behind "--".
func splitArgs(args []string) (ours, engines []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// serveWorker builds a shim, runs it to the end of its drain, and closes its journal.
func serveWorker(ctx context.Context, flags workerFlags, token string, log *slog.Logger) error {
	run := filepath.Join(flags.dir, "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		return err
	}
	reg := newRegistry()
	e, err := flags.engine.build(run, flags.name, flags.ranks, log)
	if err != nil {
		return err
	}
	ranks, err := flags.engine.ranks(flags.ranks, flags.kv.ranks)
	if err != nil {
		return err
	}
	watch, err := flags.engine.watch()
	if err != nil {
		return err
	}
	certificates, err := flags.tls.open(flags, reg, log)
	if err != nil {
		return err
	}
	announced, err := flags.kv.open(e, flags, token, certificates.forCallers(), reg, log)
	if err != nil {
		return err
	}
	journal, err := openJournal(flags.dir, "worker/"+flags.name, flags.kafka, reg, log)
	if err != nil {
		return err
	}
	traces, err := newTracing(ctx, flags.collector, "worker", flags.name, flags.spoke, log)
	if err != nil {
		return err
	}
	config := worker.Config{
		Name: flags.name, Spoke: flags.spoke, Endpoint: flags.endpoint, Ranks: ranks, Role: flags.role, Listen: flags.listen, Advertise: flags.advertise,
		Doors: splitNames(flags.doors), JoinToken: token, MaxBody: flags.bodyLimit, Engine: e, Watch: watch, BlocksAddress: announced.told(), Journal: journal.spool, DrainDelay: flags.turnAway, DrainTimeout: flags.drain, Registerer: reg, Tracer: traces.tracer, Log: log, Version: buildVersion(),
	}
	certificates.apply(&config)
	w, err := worker.New(config)
	if err != nil {
		return err
	}
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	ended := make(chan struct{})
	orders := control{status: w.Status, drain: drain, ended: ended, log: log}
	stopOrders, err := orders.serve(controlSocket(flags.dir, flags.name))
	if err != nil {
		return err
	}
	stopBlocks := announced.start(w, log)
	err = runWithOps(ctx, w.Run, func(ctx context.Context) error {
		h := workerHealth{status: w.Status, journal: journal.note, doors: splitNames(flags.doors)}
		about := aboutPage("worker", flags.name, flags.spoke, flags.said, nil)
		return workerOps(ctx, flags.ops, filepath.Join(run, flags.name+".ops"), reg, h, log, about)
	})
	stopBlocks()
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(err, journal.close(last), traces.stop(last))
	close(ended)
	stopOrders()
	return err
}
