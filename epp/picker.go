// Package epp is the endpoint picker: prompt in, ordered endpoints and a booking out. Picker is called in the process
// by our own door; Server, thin over the same call, speaks the Endpoint Picker Protocol (Gateway API Inference
// Extension, proposal 004) to every other gateway, and to our own door under `--picker ext_proc`.
//
// It promises that what it names is ready, known to Envoy and booked. What a choice costs is package router's.
package epp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/prompt"
	"github.com/spokegate/spokegate/router"
)

// Config is all that a picker needs.
type Config struct {
	Fleet      *fleet.Fleet
	Policy     *policy.Current
	Registerer prometheus.Registerer
	// Tracer makes the span "pick"; nil: none.
	Tracer trace.Tracer
}

// Picker keeps one router an endpoint of the policy, fed by the fleet.
type Picker struct {
	Config
	metrics *metrics

	mu      sync.RWMutex
	routers map[string]*router.Router // by endpoint of the policy
	epochs  map[string]string         // by address: the engine's run whose blocks the router knows of
}

// New makes a picker that knows policy and fleet as they are now. Run follows them.
func New(c Config) *Picker {
	p := &Picker{Config: c}
	p.metrics = newMetrics(c.Registerer, p)
	p.follow()
	return p
}

// Run follows policy and fleet until ctx is done.
func (p *Picker) Run(ctx context.Context) error {
	for {
		renamed, changed := p.Policy.Changed(), p.Fleet.Changed()
		p.follow()
		select {
		case <-ctx.Done():
			return nil
		case <-renamed:
		case <-changed:
		}
	}
}

// follow makes a router for each endpoint of the policy, and tells it its settings and its workers.
func (p *Picker) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.routers
	p.routers = map[string]*router.Router{}
	if snap := p.Policy.Load(); snap != nil {
		for _, e := range snap.Endpoints() {
			r := old[e.Name]
			if r == nil {
				r = router.New(router.Config{})
			}
			p.routers[e.Name] = r
			r.SetRouting(e.Routing)
			var ws []router.Worker
			for _, w := range p.Fleet.Pickable(e.Name) {
				ws = append(ws, router.Worker{Addr: w.Addr})
			}
			r.SetWorkers(ws)
		}
	}
	p.forgetRestarted()
}

// forgetRestarted drops what is remembered of engines that began anew behind the same address.
func (p *Picker) forgetRestarted() {
	epochs := map[string]string{}
	for _, w := range p.Fleet.View().Workers {
		epochs[w.Addr] = w.Epoch
		if before, known := p.epochs[w.Addr]; known && before != w.Epoch && p.routers[w.Endpoint] != nil {
			p.routers[w.Endpoint].Cleared(w.Addr)
		}
	}
	p.epochs = epochs
}

// Pick names the workers for a request that was admitted to an endpoint, best first, and books the first. The error is
// a sentence for the client.
func (p *Picker) Pick(ctx context.Context, now time.Time, endpoint string, req *openai.Request, body []byte) (router.Choice, error) {
	buf := renderBuffers.Get().(*[]byte)
	defer renderBuffers.Put(buf)
	*buf = prompt.Render((*buf)[:0], req.Op, req, body)
	return p.pick(ctx, now, endpoint, router.Ask{Prompt: *buf})
}

// renderBuffers are reused: a rendered prompt is as large as the request, and is needed only while it is picked for.
var renderBuffers = sync.Pool{New: func() any { return new([]byte) }}

// pick is Pick for a rendered prompt, and tells metrics and traces of it.
func (p *Picker) pick(ctx context.Context, now time.Time, endpoint string, ask router.Ask) (choice router.Choice, err error) {
	if p.Tracer != nil {
		_, span := p.Tracer.Start(ctx, "pick")
		defer func() {
			describe(span, endpoint, choice, err)
			span.End()
		}()
	}
	began := time.Now()
	choice, err = p.choose(now, endpoint, ask)
	p.metrics.picked(endpoint, choice, err, time.Since(began))
	switch {
	case errors.Is(err, router.ErrNoneEligible):
		return choice, fmt.Errorf("none of the workers that the gateway named serves the endpoint %q", endpoint)
	case err != nil:
		return choice, fmt.Errorf("no worker of the endpoint %q is ready", endpoint)
	}
	return choice, nil
}

func (p *Picker) choose(now time.Time, endpoint string, ask router.Ask) (router.Choice, error) {
	p.mu.RLock()
	r := p.routers[endpoint]
	p.mu.RUnlock()
	if r == nil { // the policy has only just named it, so no worker of it can be ready
		return router.Choice{}, router.ErrNoWorker
	}
	return r.Pick(now, ask)
}
