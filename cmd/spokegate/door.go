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

	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/extauthz"
	"github.com/spokegate/spokegate/extproc"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/xds"
)

// doorFlags are a door's whole configuration.
type doorFlags struct {
	name, spoke   string
	dir           string // last-good policy and spool
	policy        string
	fleetListen   string
	joinTokenFile string
	ops           string
	picker        string
	logLevel      slog.Level
	envoy         envoy.Door
}

func (d *doorFlags) register(f *flag.FlagSet) {
	f.StringVar(&d.name, "name", "door-1", "the door's `name`, unique in its spoke")
	f.StringVar(&d.spoke, "spoke", "local", "the spoke's `name`")
	f.StringVar(&d.dir, "dir", ".spokegate", "`folder` for the last good policy and the spool")
	f.StringVar(&d.policy, "policy", "", "policy `file`; a change to it is taken up while running")
	f.StringVar(&d.fleetListen, "fleet-listen", "", "`address` where workers join: host:port, or unix:PATH (default: unix:DIR/run/fleet.sock)")
	f.StringVar(&d.joinTokenFile, "join-token-file", "", "`file` with the token that workers join with")
	f.StringVar(&d.ops, "ops", "127.0.0.1:10001", "`address` of /metrics, /healthz and /readyz")
	f.StringVar(&d.picker, "picker", pickerAdmission, "who names the worker: admission (in its answer), or ext_proc (a filter of its own, by the Endpoint Picker Protocol)")
	f.StringVar(&d.envoy.Listen, "listen", "127.0.0.1:10000", "`address` where Envoy takes clients")
	f.StringVar(&d.envoy.TLSCert, "tls-cert", "", "`file` with the PEM certificate chain for clients; empty: plain HTTP. A renewed one is taken up when it is renamed into place")
	f.StringVar(&d.envoy.TLSKey, "tls-key", "", "`file` with its key")
	f.Int64Var(&d.envoy.BodyLimit, "body-limit", 32<<20, "largest request body in `bytes`")
	otlpFlag(f, &d.envoy.Collector)
	f.Float64Var(&d.envoy.TracePercent, "trace-percent", 100, "`percent` of the requests that are traced, where -otlp is given")
	levelFlag(f, &d.logLevel)
	f.StringVar(&d.envoy.Admin, "admin", "127.0.0.1:9901", "`address` of Envoy's admin page; keep it on loopback")
}

const (
	pickerAdmission = "admission"
	pickerExtProc   = "ext_proc"
)

// complete derives what the flags leave open, and refuses what does not fit.
func (d *doorFlags) complete() error {
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return err
	}
	d.dir = dir
	run := filepath.Join(d.dir, "run")
	d.envoy.DoorSocket = filepath.Join(run, "door.sock")
	switch d.picker {
	case pickerAdmission:
	case pickerExtProc:
		d.envoy.PickerSocket = filepath.Join(run, "picker.sock")
	default:
		return fmt.Errorf("-picker %q: want %s or %s", d.picker, pickerAdmission, pickerExtProc)
	}
	if d.fleetListen == "" {
		d.fleetListen = "unix:" + filepath.Join(run, "fleet.sock")
	}
	return d.envoy.Validate()
}

func runDoor(ctx context.Context, args []string) error {
	var d doorFlags
	f := flag.NewFlagSet("door", flag.ContinueOnError)
	d.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := d.complete(); err != nil {
		return err
	}
	token, err := readToken(d.joinTokenFile)
	if err != nil {
		return err
	}
	log := newLog(os.Stderr, d.logLevel, "door", d.name)
	return serveDoor(ctx, d, token, log)
}

func readToken(path string) (string, error) {
	if path == "" {
		return "", errors.New("-join-token-file is missing: workers need a token to join with")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 32 {
		return "", fmt.Errorf("%s: the join token must have at least 32 characters", path)
	}
	return token, nil
}

// serveDoor builds a door from the bottom up, runs it, and stops it from the top down.
func serveDoor(ctx context.Context, d doorFlags, token string, log *slog.Logger) error {
	reg := newRegistry()
	traces, err := newTracing(ctx, d.envoy.Collector, "door", d.name, d.spoke, log)
	if err != nil {
		return err
	}
	current := &policy.Current{}
	agent := xds.NewAgent(filepath.Join(d.dir, "policy"), current, xds.NewFile(d.policy, log), xds.Options{Log: log, Registerer: reg})
	if err := agent.Start(ctx); err != nil {
		return err
	}
	spool, err := usage.Open(filepath.Join(d.dir, "spool"), "door/"+d.name, usage.Options{Registerer: reg, Log: log})
	if err != nil {
		return err
	}
	limiter := limits.NewMemory(limits.MemoryConfig{})
	flights := flight.New(flight.Config{Limiter: limiter, Journal: spool, Spoke: d.spoke, Door: d.name, Registerer: reg, Log: log})
	minter, err := identity.NewMinter(d.name)
	if err != nil {
		return err
	}
	workers := fleet.New()
	picker := epp.New(epp.Config{Fleet: workers, Policy: current, Registerer: reg, Log: log})
	control := envoy.NewServer(d.envoy, workers, log, reg)
	admission := extauthz.Config{Policy: current, Limiter: limiter, Flights: flights, Minter: minter,
		BodyLimit: d.envoy.BodyLimit, Now: time.Now, Registerer: reg, Tracer: traces.tracer, Log: log}

	s := newServers(log)
	g := s.envoySide(d.envoy)
	control.Register(g)
	extproc.Register(g, extproc.NewMeter(flights, time.Now, reg, log), extproc.NewLog(flights, time.Now, log))
	if d.picker == pickerAdmission {
		admission.Picker = picker
	} else {
		s.pickerSide(d.envoy, &epp.Server{Picker: picker, Flights: flights, RefuseTrailers: true, BodyLimit: d.envoy.BodyLimit,
			Tracer: traces.tracer, Now: time.Now, Log: log})
	}
	extauthz.New(admission).Register(g)
	s.fleetSide(d.fleetListen, &join.Server{Fleet: workers, Token: token, Door: d.name, PublicKey: minter.PublicKey(), Log: log})
	s.opsSide(d.ops, reg, health{agent: agent.Status, policy: current, connected: control.Connected, fleet: workers, spool: spool.Stats})

	work, workCtx := errgroup.WithContext(ctx)
	work.Go(func() error { return agent.Run(workCtx) })
	work.Go(func() error { return flights.Run(workCtx) })
	work.Go(func() error { return picker.Run(workCtx) })
	work.Go(func() error { return control.Run(workCtx) })
	work.Go(func() error { return followPolicy(workCtx, current, control) })
	work.Go(func() error { return endFlightsOfDeadEnvoy(workCtx, control, flights, log) })
	work.Go(func() error { return s.run(workCtx) })
	err = work.Wait()

	// The servers are closed: no new flight opens, and what is still open is journaled before the spool closes.
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	flights.Close(last)
	return errors.Join(err, spool.Close(last), traces.stop(last))
}
