package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spokegate/spokegate/worker"
	"github.com/spokegate/spokegate/worker/kv"
)

// kvFlags say where an engine's KV events come from, and where pickers follow its blocks.
type kvFlags struct {
	blocks         string
	events, replay string
	ranks          int
	modelDir       string
}

func (k *kvFlags) register(f *flag.FlagSet) {
	f.StringVar(&k.blocks, "blocks", "127.0.0.1:0", "`address` where pickers follow which KV blocks the engine holds; empty: they cannot")
	f.StringVar(&k.events, "kv-events", "", "with -attach: where the engine publishes its KV events, the `endpoint` of its kv-events-config; empty: it does not")
	f.StringVar(&k.replay, "kv-replay", "", "with -attach: the `replay_endpoint` of its kv-events-config; empty: it has none")
	f.IntVar(&k.ranks, "kv-ranks", 1, "with -attach: how many data-parallel `ranks` publish, each a port further")
	f.StringVar(&k.modelDir, "model-dir", "", "`folder` with the model's tokenizer.json, where -model is none")
}

// blocks announces what an engine holds. A nil one announces nothing.
type blocks struct {
	source  *kv.Source
	server  *grpc.Server
	lis     net.Listener
	address string // what pickers are told
	engine  worker.Engine
}

// open listens for pickers of the worker w.
func (k *kvFlags) open(e worker.Engine, w workerFlags, token string, tls credentials.TransportCredentials, reg prometheus.Registerer, log *slog.Logger) (*blocks, error) {
	cfg, err := k.config(e, w.engine.attach)
	if err != nil || k.blocks == "" {
		return nil, err
	}
	cfg.Registerer, cfg.Log = reg, log
	b := &blocks{engine: e}
	if b.source, err = kv.New(cfg); err != nil {
		return nil, err
	}
	if b.lis, err = net.Listen("tcp", k.blocks); err != nil {
		return nil, fmt.Errorf("-blocks: %w", err)
	}
	b.server = b.source.NewServer(token, tls)
	listened := b.lis.Addr().String()
	if b.address, err = blocksAddress(listened, cmp.Or(w.advertise, w.listen), splitNames(w.doors)); err == nil && b.address == "" {
		log.Warn("pickers are not told where KV blocks are announced: a door is on another machine, and -blocks on loopback", "blocks", listened)
	}
	return b, err
}

// blocksAddress is what pickers are told: where it listens everywhere, the host at which the worker is reached; where it listens on
// loopback, nothing if a door is on another machine: that one would show its token to a stranger on its own.
func blocksAddress(listened, reached string, doors []string) (string, error) {
	host, port, err := net.SplitHostPort(listened)
	if err != nil {
		return "", err
	}
	ip := net.ParseIP(host)
	if ip.IsLoopback() && slices.ContainsFunc(doors, func(d string) bool { return !onThisMachine(d) }) {
		return "", nil
	}
	if !ip.IsUnspecified() {
		return listened, nil
	}
	host, _, err = net.SplitHostPort(reached)
	if err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return "", fmt.Errorf("-blocks %s is every address: -advertise must say which one pickers are told", listened)
	}
	return net.JoinHostPort(host, port), nil
}

// config finds the events and the model of an engine.
func (k *kvFlags) config(e worker.Engine, attach string) (kv.Config, error) {
	var c kv.Config
	source := worker.KVSource{ModelDir: k.modelDir, Kind: e.Kind()}
	if a, is := e.(worker.KVAnnouncer); is {
		source, _ = a.KVSource()
	}
	c.Why = source.Why
	for i, events := range source.Events {
		c.Feeds = append(c.Feeds, kv.Feed{Events: events, Replay: source.Replay[i]})
	}
	switch {
	case k.events != "" && attach == "":
		return c, fmt.Errorf("-kv-events goes with -attach: an engine that is run is told where to publish")
	case k.events == "" && k.replay != "":
		return c, fmt.Errorf("-kv-replay goes with -kv-events")
	case k.events != "":
		u, err := url.Parse(attach)
		if err != nil {
			return c, err
		}
		if c.Feeds, err = kv.Feeds(k.events, k.replay, u.Hostname(), k.ranks); err != nil {
			return c, fmt.Errorf("-kv-events: %w", err)
		}
	}
	if len(c.Feeds) > 0 {
		k.readModel(&c, source)
	}
	return c, nil
}

// readModel reads what pickers must know of the model. Without it nothing exact can be announced, and that is what they are told.
func (k *kvFlags) readModel(c *kv.Config, source worker.KVSource) {
	dir := k.modelDir
	if dir == "" {
		dir = source.ModelDir
	}
	switch {
	case dir != "":
		var err error
		if c.Model, err = kv.ReadModel(dir); err != nil {
			c.Why = err.Error()
		}
	case source.Kind == "sim":
		c.Model = kv.SimModel()
	default:
		c.Why = "the model's folder is not known: see -model-dir"
	}
}

// told is the address for pickers; empty: there is none.
func (b *blocks) told() string {
	if b == nil {
		return ""
	}
	return b.address
}

// start follows the engine and serves pickers until stop.
func (b *blocks) start(w *worker.Worker, log *slog.Logger) (stop func()) {
	if b == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { b.source.Run(ctx) })
	all.Go(func() { b.seed(ctx, w) })
	all.Go(func() { b.adapters(ctx) })
	all.Go(func() {
		if err := b.server.Serve(b.lis); err != nil {
			log.Error("pickers cannot follow the blocks", "error", err)
		}
	})
	log.Info("KV blocks are announced", "address", b.address)
	return func() {
		cancel()
		b.server.Stop()
		all.Wait()
	}
}

// seed passes on the seed that the doors name.
func (b *blocks) seed(ctx context.Context, w *worker.Worker) {
	for {
		seed, known, changed := w.HashSeed()
		if known {
			b.source.SetSeed(seed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// adaptersEvery is how often the engine is asked for its adapters: they may be loaded and unloaded while it runs.
const adaptersEvery = 5 * time.Second

// adapters passes on which names are those of adapters. While the engine does not say, what it said before counts.
func (b *blocks) adapters(ctx context.Context) {
	for {
		if names, err := worker.Adapters(ctx, b.engine); err == nil {
			b.source.SetAdapters(names)
		}
		if !pause(ctx, adaptersEvery) {
			return
		}
	}
}
