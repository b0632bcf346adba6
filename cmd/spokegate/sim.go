package main

import (
	"context"
	"flag"
	"strings"

	"github.com/spokegate/spokegate/sim"
)

// runSim serves a simulated engine.
func runSim(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	listen := f.String("listen", "127.0.0.1:8000", "`address`: host:port, or unix:PATH")
	rates := f.String("rates", "", "rate `file`: how fast it is (default: embedded)")
	models := f.String("model", "sim-small,sim-large", "comma-separated `names` of the models that it serves; empty: any")
	ranks := f.Int("ranks", 1, "data-parallel ranks, each with a block cache of its own")
	events := f.String("kv-events", "", "ZeroMQ `address` where it publishes what its block cache stores and evicts, as vLLM does: ipc://PATH or tcp://HOST:PORT; empty: nowhere")
	replay := f.String("kv-replay", "", "ZeroMQ `address` where past events are asked for; empty: nowhere")
	if err := parse(f, args); err != nil {
		return err
	}
	var names []string
	if *models != "" {
		names = strings.Split(*models, ",")
	}
	return sim.Run(ctx, sim.Config{Listen: *listen, RatesFile: *rates, Models: names, KVEvents: *events, KVReplay: *replay, Ranks: *ranks})
}
