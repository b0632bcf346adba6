package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// eppCommands are what can be asked of a picker; without one of them it runs.
var eppCommands = map[string]role{"status": showPicker, "explain": explainPick}

// eppFlags are a standalone picker's whole configuration.
type eppFlags struct {
	name, spoke          string
	endpoint             string
	policy               string
	workers, modelDir    string
	pool                 poolFlags
	fleetFlags           fleetFlags
	listen, healthListen string
	tls                  servedTLS
	bodyLimit, heldLimit int64
	refuseTrailers       bool
	sheddable            string
	ops                  string
	turnAway, drain      time.Duration
	collector            string
	level                slog.Level
	said                 said // all of it, as the page /about tells it
}

func (e *eppFlags) register(f *flag.FlagSet) {
	f.StringVar(&e.name, "name", "picker-1", "the picker's `name`, unique in its spoke")
	f.StringVar(&e.spoke, "spoke", "local", "the spoke's `name`")
	f.StringVar(&e.endpoint, "endpoint", "", "the `endpoint` that it picks for: one pool of workers. Those that join must serve it. Empty: the name of -pool, or else default")
	f.StringVar(&e.policy, "policy", "", "policy `file`, for how the endpoint chooses (models and endpoints are enough); a change to it is taken up while running. Empty: the defaults")
	f.StringVar(&e.workers, "workers", "", "`file` that lists workers without a shim; a change to it is taken up while running")
	f.StringVar(&e.modelDir, "model-dir", "", "`folder` with the model's tokenizer.json, for workers of the file, or pods, that have kv_events")
	e.pool.register(f)
	e.fleetFlags.register(f)
	f.Lookup("fleet-listen").Usage = "`address` where workers with a shim join, as they join a door: host:port, or unix:PATH; empty: none does"
	f.StringVar(&e.listen, "listen", ":9002", "`address` where gateways ask: host:port, or unix:PATH")
	f.StringVar(&e.healthListen, "health-listen", ":9003", "`address` of gRPC health without TLS, for probes; it is at -listen too. Empty: only there")
	e.tls.register(f)
	f.BoolVar(&e.refuseTrailers, "refuse-trailers", false, "answer requests that have trailers by 400: an Envoy whose route retries would send their bodies twice")
	f.StringVar(&e.sheddable, "sheddable", "", "comma-separated `objectives` of negative priority: requests that name one by x-gateway-inference-objective are refused first, with 429, when all workers are busy")
	f.Int64Var(&e.bodyLimit, "body-limit", 32<<20, "largest request body in `bytes`")
	f.Int64Var(&e.heldLimit, "held-limit", 1<<30, "`bytes` that all requests together may hold that are not picked for yet; 0: no bound")
	f.StringVar(&e.ops, "ops", "127.0.0.1:10002", "`address` of /metrics, /healthz, /readyz and /fleet")
	f.DurationVar(&e.turnAway, "drain-delay", 5*time.Second, "how long after SIGTERM gateways may go on asking, while health already says no")
	f.DurationVar(&e.drain, "drain", 30*time.Second, "how long after that running requests may go on")
	otlpFlag(f, &e.collector)
	levelFlag(f, &e.level)
}

// complete refuses what does not fit.
func (e *eppFlags) complete() error {
	if err := e.pool.complete(e.workers); err != nil {
		return err
	}
	e.endpoint = cmp.Or(e.endpoint, e.pool.name, "default")
	if bad := policy.BadID(e.endpoint); bad != "" {
		return fmt.Errorf("-endpoint %q: %s", e.endpoint, bad)
	}
	if e.bodyLimit < 1 || e.bodyLimit > 1<<30 || e.heldLimit < 0 {
		return fmt.Errorf("-body-limit %d, -held-limit %d: want 1 to %d, and not below 0", e.bodyLimit, e.heldLimit, 1<<30)
	}
	if e.turnAway < 0 || e.drain < 0 {
		return errors.New("-drain-delay and -drain: want no negative time")
	}
	if err := e.tls.complete(); err != nil {
		return err
	}
	switch {
	case e.fleetFlags.listen != "":
		return e.fleetFlags.complete("")
	case e.workers == "" && e.pool.name == "":
		return errors.New("-workers, -pool or -fleet-listen is required: a picker must know of workers")
	case e.fleetFlags.tls.Given() || e.fleetFlags.tokenFile != "" || e.fleetFlags.seedFile != "":
		return errors.New("-join-token-file, -seed-file and -fleet-cert go with -fleet-listen")
	}
	return nil
}

// runEPP runs a picker for gateways that speak the Endpoint Picker Protocol, without a door.
func runEPP(ctx context.Context, args []string) error {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, rest, err := pickSub("epp", args, eppCommands)
		if err != nil {
			return err
		}
		return command(ctx, rest)
	}
	var e eppFlags
	f := flag.NewFlagSet("epp", flag.ContinueOnError)
	e.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := e.complete(); err != nil {
		return err
	}
	e.said = sayFlags(f)
	coarseTimers()
	var token, secret string
	if e.fleetFlags.listen != "" {
		var err error
		if token, secret, err = e.fleetFlags.secrets(); err != nil {
			return err
		}
	}
	return serveEPP(ctx, e, token, secret, newLog(os.Stderr, e.level, "epp", e.name))
}
