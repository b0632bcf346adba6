package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/file"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
)

// standalone is what a picker without a door consists of, each part above those that it uses.
type standalone struct {
	eppFlags
	log      *slog.Logger
	registry *prometheus.Registry
	traces   tracing

	policy       *policy.Current
	source       *xds.File // of the policy; nil: the defaults hold
	fleet        *fleet.Fleet
	listed       *file.Source // nil: no file lists workers
	pool         *inPool      // nil: no pool does
	seed         *seed
	certificates *mtls.Keeper
	picker       *epp.Picker
	health       *eppHealth
	servers      *servers
}

// serveEPP builds a picker, runs it, and stops it from the top down: first gateways turn away, then their streams end, and only
// then does it forget the workers.
func serveEPP(ctx context.Context, flags eppFlags, token, secret string, log *slog.Logger) error {
	s := &standalone{eppFlags: flags, log: log, registry: newRegistry(), servers: &servers{}}
	if err := s.build(ctx, token, secret); err != nil {
		return err
	}
	if err := s.listen(token); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	work, life := errgroup.WithContext(life)
	for _, part := range []func(context.Context) error{s.picker.Run, s.followPolicy, s.followFile, s.pool.run, s.seed.run, s.health.run} {
		work.Go(func() error { return part(life) })
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(life, stop)()
	work.Go(func() error {
		defer end()
		return s.servers.run(serving)
	})
	err := work.Wait()
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, s.traces.stop(last))
}

// build makes what the picker knows.
func (s *standalone) build(ctx context.Context, token, secret string) (err error) {
	if s.traces, err = newTracing(ctx, s.collector, "epp", s.name, s.spoke, s.log); err != nil {
		return err
	}
	s.policy = &policy.Current{}
	if s.eppFlags.policy != "" {
		s.source = xds.NewFile(s.eppFlags.policy, s.log)
	} else if err := s.take(policy.NewCut(&policyv1.Set{
		Models:    []*policyv1.Model{{Name: s.endpoint, Endpoint: s.endpoint}},
		Endpoints: []*policyv1.Endpoint{{Name: s.endpoint}},
	})); err != nil {
		return err
	}
	s.fleet = fleet.NewUnacknowledged()
	s.registry.MustRegister(fleet.NewCollector(s.fleet, func() []string { return endpointNames(s.policy.Load()) }))
	if secret == "" {
		secret = rand.Text() // nobody else has to come to the same seed
	}
	s.seed = newSeed(secret, s.fleetFlags.seedFile, s.spoke, s.log)
	if s.certificates, err = openCertificates(s.fleetFlags.tls, "workers", s.registry, s.log); err != nil {
		return err
	}
	var blocks *epp.Blocks
	if s.fleetFlags.listen != "" {
		blocks = s.joining(token).blocks()
	}
	if blocks, err = s.listing(blocks); err != nil {
		return err
	}
	s.picker = epp.New(epp.Config{Fleet: s.fleet, Policy: s.policy, Registerer: s.registry, Tracer: s.traces.tracer, Blocks: blocks})
	s.health = newEPPHealth(s)
	s.health.led(s.pool == nil || s.pool.elector == nil)
	return nil
}

// listing makes what lists workers that do not join by themselves.
func (s *standalone) listing(blocks *epp.Blocks) (*epp.Blocks, error) {
	if s.workers == "" && s.eppFlags.pool.name == "" {
		return blocks, nil
	}
	keeper := roster.Keeper{Fleet: s.fleet, Watch: scrape.New(scrape.Config{Fleet: s.fleet, Registerer: s.registry, Log: s.log}).Watch}
	if !s.fleetFlags.guess {
		ears := newOwnEars(s.modelDir, s.seed, s.log)
		keeper.Open, blocks = ears.open, ears.blocks(blocks)
	}
	if s.workers != "" {
		s.listed = &file.Source{Path: s.workers, Endpoint: s.endpoint, Keeper: keeper, Log: s.log}
		return blocks, nil
	}
	var err error
	s.pool, err = newInPool(s, keeper)
	return blocks, err
}

func (s *standalone) joining(token string) joining {
	return joining{s.fleetFlags, s.spoke, s.name, token, s.fleet, s.seed, s.certificates, s.log}
}

// take puts a policy in force that has the endpoint.
func (s *standalone) take(cut *policy.Cut) error {
	snap, err := policy.CompileCut(s.policy.Load(), cut, time.Now())
	if err != nil {
		return err
	}
	for _, e := range snap.Endpoints() {
		if e.Name == s.endpoint {
			s.policy.Store(snap)
			return nil
		}
	}
	return fmt.Errorf("the policy has no endpoint %s", s.endpoint)
}

// followPolicy takes up what the file says. A bad one changes nothing.
func (s *standalone) followPolicy(ctx context.Context) error {
	if s.source == nil {
		return nil
	}
	return s.source.Run(ctx, nil, func(c xds.Candidate) {
		err := c.Err
		if err == nil {
			err = s.take(c.Cut)
		}
		s.health.judged(err)
		if err != nil {
			s.log.Warn("policy refused", "from", c.From, "error", err)
			return
		}
		s.log.Info("policy in force", "from", c.From)
	})
}

func (s *standalone) followFile(ctx context.Context) error {
	if s.listed == nil {
		return nil
	}
	return s.listed.Run(ctx)
}

// listen puts the services before it: towards gateways and probes, towards workers, towards operators.
func (s *standalone) listen(token string) error {
	tls, err := s.tls.options(s.log)
	if err != nil {
		return err
	}
	if len(tls) == 0 && !onThisMachine(s.eppFlags.listen) {
		s.log.Warn("gateways ask without TLS: prompts cross the network as they are", "address", s.eppFlags.listen)
	}
	g := grpc.NewServer(append(append(envoy.Door{BodyLimit: s.bodyLimit}.ServerOptions(), missed(15*time.Second, 45*time.Second)), tls...)...)
	extprocv3.RegisterExternalProcessorServer(g, &epp.Server{Picker: s.picker, Endpoint: s.endpoint, RefuseTrailers: s.refuseTrailers,
		BodyLimit: s.bodyLimit, HeldLimit: s.heldLimit, Sheddable: splitNames(s.sheddable), Now: time.Now})
	s.health.server.Register(g)
	s.servers.grpcUntil(s.eppFlags.listen, g, func() { s.turnedAway(g) })
	if s.healthListen != "" {
		probes := grpc.NewServer()
		s.health.server.Register(probes)
		s.servers.grpc(s.healthListen, probes)
	}
	if s.fleetFlags.listen != "" {
		// Shims serve nobody who has no context of a door, and this is none: the key is one that signs nothing.
		workers := s.joining(token)
		s.servers.fleetSide(s.fleetFlags.listen, workers.server(identity.NewMinter(s.name).Keys, s.eppFlags.listen, s.healthListen, s.ops), workers.options()...)
	}
	s.opsSide()
	return nil
}

// missed notices a gateway that is gone without a word, with its machine or the network: where nothing was heard for some time it
// is asked, and if it does not answer for as long as patience lasts its streams end, and so their bookings.
func missed(after, patience time.Duration) grpc.ServerOption {
	return grpc.KeepaliveParams(keepalive.ServerParameters{Time: after, Timeout: patience})
}

// turnedAway ends the service: health says no, gateways have time to see it, and streams have time to end.
func (s *standalone) turnedAway(g *grpc.Server) {
	s.health.drain()
	s.pool.resign()
	s.log.Info("draining", "delay", s.turnAway, "most", s.drain)
	time.Sleep(s.turnAway)
	cut := time.AfterFunc(s.drain, g.Stop)
	defer cut.Stop()
	g.GracefulStop()
}

func (s *standalone) opsSide() {
	ops := newOps(s.registry, s.health.report, append(pickerPages{s.picker, s.policy, s.name, s.bodyLimit, s.endpoint}.pages(), page{"GET /fleet", s.fleetPage()},
		aboutPage("epp", s.name, s.spoke, s.said, nil))...)
	serve := func(lis net.Listener) error {
		if err := ops.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	s.servers.list = append(s.servers.list, listener{s.ops, serve, func() { _ = ops.Close() }})
}

// fleetPage is as a door's. No Envoy is connected to a picker, and none has to be.
func (s *standalone) fleetPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		st := newFleetStatus(s.fleet, s.policy.Load(), s.picker.Indexes())
		st.Door, st.Spoke, st.Version, st.At, st.Envoy = s.name, s.spoke, buildVersion(), time.Now(), true
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(st) // who asked may have left
	})
}
