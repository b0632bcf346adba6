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

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/limits"
)

// doorFlags are a door's whole configuration.
type doorFlags struct {
	name, spoke  string
	dir          string // last-good policy and spool
	policy       string
	hubFlags     hubFlags
	fleetFlags   fleetFlags
	ops          string
	picker       string
	redis        string
	redisTimeout time.Duration
	kafka        kafkaFlags
	rotateKey    time.Duration
	logLevel     slog.Level
	envoy        envoy.Door
	gateway      string // who configures the Envoy beside the door; empty: the door
	said         said   // all of it, as the page /about tells it
}

func (d *doorFlags) register(f *flag.FlagSet) {
	f.StringVar(&d.name, "name", "door-1", "the door's `name`, unique in its spoke")
	f.StringVar(&d.spoke, "spoke", "local", "the spoke's `name`")
	f.StringVar(&d.dir, "dir", ".spokegate", "`folder` for the last good policy and the spool")
	f.StringVar(&d.policy, "policy", "", "policy `file`; a change to it is taken up while running")
	d.hubFlags.register(f)
	d.fleetFlags.register(f)
	f.StringVar(&d.ops, "ops", "127.0.0.1:10001", "`address` of /metrics, /healthz, /readyz and /fleet")
	f.StringVar(&d.picker, "picker", pickerAdmission, "who names the worker: admission (in its answer), or ext_proc (a filter of its own, by the Endpoint Picker Protocol)")
	f.StringVar(&d.envoy.Listen, "listen", "127.0.0.1:10000", "`address` where Envoy takes clients")
	f.StringVar(&d.envoy.TLSCert, "tls-cert", "", "`file` with the PEM certificate chain for clients; empty: plain HTTP. A renewed one is taken up when it is renamed into place")
	f.StringVar(&d.envoy.TLSKey, "tls-key", "", "`file` with its key")
	f.Int64Var(&d.envoy.BodyLimit, "body-limit", 32<<20, "largest request body in `bytes`")
	f.StringVar(&d.redis, "redis", os.Getenv("SPOKEGATE_REDIS"), "`URL` of the Redis that the spoke's doors share their counters in, redis://…; empty: each door counts in memory ($SPOKEGATE_REDIS)")
	f.DurationVar(&d.redisTimeout, "redis-timeout", 150*time.Millisecond, "how long Redis may take to answer before this door counts by itself; more on a machine that is often busy")
	f.IntVar(&d.envoy.TrustedHops, "trusted-hops", 0, "`number` of proxies before Envoy whose x-forwarded-for names the client; 0: whoever connects is the client")
	f.DurationVar(&d.rotateKey, "rotate-key", 24*time.Hour, "how often the key changes that this door signs contexts for workers with; 0: never")
	d.kafka.register(f)
	otlpFlag(f, &d.envoy.Collector)
	f.Float64Var(&d.envoy.TracePercent, "trace-percent", 100, "`percent` of the requests that are traced, where -otlp is given")
	levelFlag(f, &d.logLevel)
	f.StringVar(&d.envoy.Admin, "admin", ownAdmin, "`address` of Envoy's admin page; keep it on loopback")
}

const (
	leastRedisTimeout = 10 * time.Millisecond
	mostRedisTimeout  = 2 * time.Second

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
	if err := d.completeGateway(); err != nil {
		return err
	}
	if err := d.fleetFlags.complete(run); err != nil {
		return err
	}
	if err := d.hubFlags.complete(d.policy); err != nil {
		return err
	}
	d.envoy.WorkerTLS, d.envoy.Spoke = d.fleetFlags.tls, d.spoke
	for _, path := range []*string{&d.envoy.TLSCert, &d.envoy.TLSKey} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if d.redis != "" {
		if _, err := limits.ParseRedisURL(d.redis); err != nil {
			return fmt.Errorf("-redis: %w", err)
		}
	}
	if d.redisTimeout < leastRedisTimeout || d.redisTimeout > mostRedisTimeout {
		return fmt.Errorf("-redis-timeout %v: want %v to %v: Envoy waits 5 s for the whole admission", d.redisTimeout, leastRedisTimeout, mostRedisTimeout)
	}
	if err := d.kafka.complete(); err != nil {
		return err
	}
	if d.rotateKey != 0 && d.rotateKey < leastRotation {
		return fmt.Errorf("-rotate-key %v: want at least %v, or 0", d.rotateKey, leastRotation)
	}
	return d.envoy.Validate()
}

// url is where clients find the door.
func (d *doorFlags) url() string {
	if d.envoy.TLSCert != "" {
		return "https://" + d.envoy.Listen
	}
	return "http://" + d.envoy.Listen
}

func runDoor(ctx context.Context, args []string) error {
	var d doorFlags
	f := flag.NewFlagSet("door", flag.ContinueOnError)
	d.register(f)
	d.registerGateway(f)
	if err := parse(f, args); err != nil {
		return err
	}
	d.placeAdmin(f)
	if err := d.complete(); err != nil {
		return err
	}
	d.said = sayFlags(f)
	coarseTimers()
	token, secret, err := d.fleetFlags.secrets()
	if err != nil {
		return err
	}
	return serveDoor(ctx, d, token, secret, newLog(os.Stderr, d.logLevel, "door", d.name))
}

func readToken(path string) (string, error) {
	if path == "" {
		return "", errors.New("-join-token-file is missing: doors and their workers share a file with a secret of at least 32 characters " +
			"(openssl rand -hex 32), or know each other by certificates: docs/operating.md")
	}
	return readSecret(path, "the join token")
}

func readSecret(path, what string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	secret := strings.TrimSpace(string(data))
	if len(secret) < 32 {
		return "", fmt.Errorf("%s in %s has %d characters: want at least 32 characters (openssl rand -hex 32)", what, path, len(secret))
	}
	return secret, nil
}
