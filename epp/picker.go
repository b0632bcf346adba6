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
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	Log        *slog.Logger
}

// Picker keeps one router an endpoint, fed by the fleet.
type Picker struct {
	Config
	metrics *metrics

	mu      sync.RWMutex
	routers map[string]*router.Router // by endpoint of the policy; one stays once it had a worker
	epochs  map[string]string         // by address: the engine's run whose blocks the router knows of
}

// New makes a picker that knows no worker until Run follows the fleet.
func New(c Config) *Picker {
	p := &Picker{Config: c, routers: map[string]*router.Router{}, epochs: map[string]string{}}
	p.metrics = newMetrics(c.Registerer, p)
	return p
}

// Run follows the fleet until ctx is done.
func (p *Picker) Run(ctx context.Context) error {
	for {
		changed := p.Fleet.Changed()
		p.follow()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// follow tells each router which workers there are.
func (p *Picker) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	snap := p.Policy.Load()
	for _, w := range p.Fleet.View().Workers {
		// A worker may name any endpoint; what the policy does not know will not be asked for.
		if p.routers[w.Endpoint] == nil && (snap == nil || snap.Endpoint(w.Endpoint) != nil) {
			p.routers[w.Endpoint] = router.New(router.Config{OverlapWeight: 1})
		}
	}
	for endpoint, r := range p.routers {
		var ws []router.Worker
		for _, w := range p.Fleet.Pickable(endpoint) {
			ws = append(ws, router.Worker{Addr: w.Addr})
		}
		r.SetWorkers(ws)
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
func (p *Picker) Pick(now time.Time, endpoint string, req *openai.Request, body []byte) (router.Choice, error) {
	buf := renderBuffers.Get().(*[]byte)
	defer renderBuffers.Put(buf)
	*buf = prompt.Render((*buf)[:0], req.Op, req, body)
	return p.pick(now, endpoint, *buf, nil)
}

// renderBuffers are reused: a rendered prompt is as large as the request, and is needed only while it is picked for.
var renderBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (p *Picker) pick(now time.Time, endpoint string, text []byte, subset []string) (router.Choice, error) {
	began := time.Now()
	r := p.router(endpoint)
	if r == nil { // perhaps the policy has only just named it
		p.follow()
		r = p.router(endpoint)
	}
	if r == nil {
		p.metrics.picks.WithLabelValues(endpoint, "no_worker").Inc()
		return router.Choice{}, fmt.Errorf("no worker serves the endpoint %q", endpoint)
	}
	if routing, ok := p.routing(endpoint); ok {
		r.SetRouting(routing)
	}
	choice, err := r.Pick(now, router.Ask{Prompt: text, Subset: subset})
	p.metrics.picked(endpoint, choice, err, time.Since(began))
	switch {
	case errors.Is(err, router.ErrNoneEligible):
		return choice, fmt.Errorf("none of the workers that the gateway named serves the endpoint %q", endpoint)
	case err != nil:
		return choice, fmt.Errorf("no worker of the endpoint %q is ready", endpoint)
	}
	return choice, nil
}

func (p *Picker) router(endpoint string) *router.Router {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.routers[endpoint]
}

// routing is what today's policy says of the endpoint, if anything.
func (p *Picker) routing(endpoint string) (policy.Routing, bool) {
	if s := p.Policy.Load(); s != nil {
		if e := s.Endpoint(endpoint); e != nil {
			return e.Routing, true
		}
	}
	return policy.Routing{}, false
}
