package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/extauthz"
	"github.com/spokegate/spokegate/extproc"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/identity/jwks"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/follow"
)

// door is what one door process consists of, each part above those that it uses.
type door struct {
	doorFlags
	log      *slog.Logger
	registry *prometheus.Registry
	traces   tracing

	policy     *policy.Current
	agent      *xds.Agent
	hub        *follow.Hub // nil: the policy comes from a file
	journal    *journal
	rejections *rejections
	limiter    counters
	elsewhere  *limits.Elsewhere // what quotas have counted at other spokes; nil: there is no hub
	flights    *flight.Table
	minter     *identity.Minter
	issuers    *identity.Issuers
	issuerKeys *jwks.Keeper // reads what issuers verify with
	fleet      *fleet.Fleet
	seed       *seed
	// certificates are what workers know the door by; nil: it has none.
	certificates *mtls.Keeper
	shims        *join.Server
	picker       *epp.Picker
	control      envoySide
	servers      *servers
}

// serveDoor builds a door from the bottom up, runs it, and stops it from the top down.
func serveDoor(ctx context.Context, flags doorFlags, token, secret string, log *slog.Logger) error {
	d := &door{doorFlags: flags, log: log, registry: newRegistry()}
	d.seed = newSeed(secret, flags.fleetFlags.seedFile, flags.spoke, log)
	if err := d.build(ctx, token); err != nil {
		return err
	}
	d.listen(token)

	work, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		d.agent.Run, d.flights.Run, d.picker.Run, d.control.Run, d.issuerKeys.Run, d.followPolicy, d.followHub, d.rotateKeys, d.seed.run,
		d.rejections.run, d.endFlightsOfDeadEnvoy, d.servers.run,
	} {
		work.Go(func() error { return part(ctx) })
	}
	err := work.Wait()

	// The servers are closed: no new flight opens, and what is still open is journaled before the spool closes.
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.flights.Close(last)
	return errors.Join(err, d.limiter.Close(last), d.journal.close(last), d.rejections.close(last), d.traces.stop(last))
}

// build makes the domain: what a door knows and holds. Nothing runs yet but the last good policy.
func (d *door) build(ctx context.Context, token string) (err error) {
	if err := os.MkdirAll(filepath.Join(d.dir, "run"), 0o700); err != nil {
		return err
	}
	if d.traces, err = newTracing(ctx, d.envoy.Collector, "door", d.name, d.spoke, d.log); err != nil {
		return err
	}
	d.policy = &policy.Current{}
	source, err := d.source()
	if err != nil {
		return err
	}
	d.agent = xds.NewAgent(filepath.Join(d.dir, "policy"), d.policy, source, xds.Options{Log: d.log, Registerer: d.registry})
	begun := d.tellWaiting()
	err = d.agent.Start(ctx)
	begun()
	if err != nil {
		return err
	}
	if d.journal, err = openJournal(d.dir, "door/"+d.name, d.kafka, d.registry, d.log); err != nil {
		return err
	}
	if d.rejections, err = openRejections(d.doorFlags, d.registry, d.log); err != nil {
		return err
	}
	if d.limiter, err = newCounters(d.doorFlags, d.elsewhere, d.registry, d.log); err != nil {
		return err
	}
	d.flights = flight.New(flight.Config{Limiter: d.limiter, Journal: d.journal.spool, Spoke: d.spoke, Door: d.name, Registerer: d.registry, Log: d.log})
	d.minter = identity.NewMinter(d.name)
	d.issuers = &identity.Issuers{}
	d.issuerKeys = jwks.New(d.issuers, jwks.Options{Log: d.log, Registerer: d.registry})
	d.issuerKeys.Follow(issuersOf(d.policy.Load()))
	d.fleet = d.newFleet()
	d.registry.MustRegister(fleet.NewCollector(d.fleet, func() []string { return endpointNames(d.policy.Load()) }))
	if d.certificates, err = openCertificates(d.fleetFlags.tls, "workers", d.registry, d.log); err != nil {
		return err
	}
	d.picker = epp.New(epp.Config{Fleet: d.fleet, Policy: d.policy, Registerer: d.registry, Tracer: d.traces.tracer, Blocks: d.joining(token).blocks()})
	d.control = d.newControl()
	// Now, lest an Envoy that is there already be told to drop what it has.
	d.control.SetEndpoints(endpointNames(d.policy.Load()))
	return nil
}

// listen puts the services before the domain: towards Envoy, towards workers, towards operators.
func (d *door) listen(token string) {
	d.servers = &servers{}
	g := d.servers.envoySide(d.envoy, d.control.ServerOptions())
	d.control.Register(g)
	extproc.Register(g, extproc.NewMeter(d.flights, time.Now, d.registry, d.log), extproc.NewLog(d.flights, time.Now, d.log))
	admission := extauthz.Config{Policy: d.policy, Issuers: d.issuers, Limiter: d.limiter, Flights: d.flights, Minter: d.minter,
		Refusals: d.rejections, Closed: d.tooOld, PickInHeader: d.gateway != "", BodyLimit: d.envoy.BodyLimit, Now: time.Now, Registerer: d.registry, Tracer: d.traces.tracer, Log: d.log}
	workers := d.joining(token)
	d.shims = workers.server(d.minter.Keys, d.envoy.Listen, d.envoy.Admin, d.ops)
	d.shims.Began = d.flights.Began
	d.shims.Macs = d.fleetFlags.private() && d.gateway == "" // a gateway's Envoy may send a request to a worker that was not named
	admission.Secrets = d.shims.Secret
	if d.doorFlags.picker == pickerAdmission {
		admission.Picker = d.picker
	} else {
		d.servers.pickerSide(d.envoy, &epp.Server{Picker: d.picker, Flights: d.flights, RefuseTrailers: true,
			BodyLimit: d.envoy.BodyLimit, Now: time.Now})
	}
	asked := extauthz.New(admission)
	asked.Register(g)
	if d.gateway == "" {
		d.servers.admissionSide(d.envoy, asked.HTTP())
	}
	d.servers.fleetSide(d.fleetFlags.listen, d.shims, workers.options()...)
	d.servers.opsSide(d.ops, filepath.Join(d.dir, "run", opsFile), d.registry, d.pages(), health{agent: d.agent.Status, hub: d.hub, tooOld: d.tooOld,
		policy: d.policy, connected: d.control.Connected, gateway: d.gateway, envoy: newEnvoyAdmin(d.envoy.Admin, adminPatience),
		fleet: d.fleet, issuers: d.issuerKeys.Status, indexes: d.picker.Indexes, counters: d.limiter.Status, journal: func(r *report) {
			d.journal.note(r)
			d.rejections.note(r)
		}})
}

// counters are where limits are counted.
type counters interface {
	limits.Limiter
	Close(ctx context.Context) error
	Status() string
	// Counted is what quotas have counted here in the current day and month.
	Counted(now time.Time) []limits.Total
}

// inMemory counts for this door alone.
type inMemory struct{ *limits.Memory }

func (inMemory) Close(context.Context) error { return nil }
func (inMemory) Status() string              { return "in memory, for this door alone; a restart forgets them" }

func newCounters(d doorFlags, elsewhere *limits.Elsewhere, reg *prometheus.Registry, log *slog.Logger) (counters, error) {
	memory := limits.NewMemory(limits.MemoryConfig{Elsewhere: elsewhere})
	if d.redis == "" {
		return inMemory{memory}, nil
	}
	shared, err := limits.NewRedis(limits.RedisConfig{URL: d.redis, Spoke: d.spoke, Door: d.name, Timeout: d.redisTimeout, Elsewhere: elsewhere, Registerer: reg, Log: log})
	if err != nil {
		return nil, err
	}
	return limits.NewFallback(shared, memory, limits.FallbackConfig{Registerer: reg, Log: log})
}
