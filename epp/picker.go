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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/prompt"
	"github.com/spokegate/spokegate/prompt/text"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/router/blocktree"
)

// Config is all that a picker needs.
type Config struct {
	Fleet      *fleet.Fleet
	Policy     *policy.Current
	Registerer prometheus.Registerer
	// Tracer makes the span "pick"; nil: none.
	Tracer trace.Tracer
	// Blocks follows what the workers hold; nil: it is guessed.
	Blocks *Blocks
}

// Picker keeps one router an endpoint of the policy, fed by the fleet.
type Picker struct {
	Config
	metrics *metrics
	texts   *texts
	checks  *checks

	// routers are by endpoint of the policy. The map is replaced, never changed: no pick waits while a fleet is taken up.
	routers atomic.Pointer[map[string]*router.Router]
	epochs  map[string]string // by address: the engine's run whose blocks the router knows of; follow's alone
}

// New makes a picker that knows policy and fleet as they are now. Run follows them.
func New(c Config) *Picker {
	log := slog.New(slog.DiscardHandler)
	if c.Blocks != nil {
		log = c.Blocks.Log
	}
	p := &Picker{Config: c, texts: newTexts(log), checks: newChecks(log)}
	p.routers.Store(&map[string]*router.Router{})
	p.metrics = newMetrics(c.Registerer, p)
	p.follow()
	return p
}

// Run follows policy, fleet and what workers announce until ctx is done.
func (p *Picker) Run(ctx context.Context) error {
	var blocks followers
	defer blocks.stop()
	late, loads := time.NewTicker(startup/3), time.NewTicker(loadsEvery)
	defer late.Stop()
	defer loads.Stop()
	renamed, changed := p.Policy.Changed(), p.Fleet.Changed()
	p.follow()
	blocks.set(ctx, p, p.Fleet.View().Workers)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-late.C:
			p.texts.complainOfLate(now)
			continue
		case <-loads.C:
			p.reportLoads()
			continue
		case <-renamed:
		case <-changed:
		}
		renamed, changed = p.Policy.Changed(), p.Fleet.Changed()
		p.follow()
		blocks.set(ctx, p, p.Fleet.View().Workers)
	}
}

// follow makes a router for each endpoint of the policy, and tells it its settings and its workers. Only New and Run call it, one
// after the other.
func (p *Picker) follow() {
	routers := map[string]*router.Router{}
	if snap := p.Policy.Load(); snap != nil {
		for _, e := range snap.Endpoints() {
			r := p.router(e.Name)
			if r == nil {
				r = router.New(router.Config{})
			}
			routers[e.Name] = r
			r.SetRouting(e.Routing)
			r.SetWorkers(workersOf(p.Fleet.Pickable(e.Name)))
		}
	}
	p.routers.Store(&routers)
	p.forgetRestarted()
}

// forgetRestarted drops what is remembered of engines that began anew behind the same address.
func (p *Picker) forgetRestarted() {
	epochs := map[string]string{}
	for _, w := range p.Fleet.View().Workers {
		epochs[w.Addr] = w.Epoch
		if before, known := p.epochs[w.Addr]; known && before != w.Epoch {
			if r := p.router(w.Endpoint); r != nil {
				r.Cleared(w.Addr)
			}
		}
	}
	p.epochs = epochs
}

// Pick names the workers for a request that was admitted to an endpoint, best first, and books the first. The error is
// a sentence for the client; where all are busy it is a router.BusyError, and the choice can explain itself. hints are what is known
// of the request beside its prompt.
func (p *Picker) Pick(ctx context.Context, now time.Time, endpoint string, hints router.Ask, req *openai.Request, body []byte) (router.Choice, error) {
	b := buffers.Get().(*rendered)
	defer buffers.Put(b)
	return p.pick(ctx, now, endpoint, p.ask(ctx, b, endpoint, req, body).with(hints))
}

// with adds what is known beside the prompt.
func (a ask) with(hints router.Ask) ask {
	hints.Prompt, hints.Text, hints.Root, hints.Begins = a.Prompt, a.Text, a.Root, a.Begins
	a.Ask = hints
	return a
}

// Would is what Pick would answer now, and how the prompt's text was rendered for it: see the metric of texts. It books nothing,
// counts nothing, and remembers nothing of the prompt.
func (p *Picker) Would(ctx context.Context, now time.Time, endpoint string, hints router.Ask, req *openai.Request, body []byte) (c router.Choice, text string, err error) {
	r := p.router(endpoint)
	if r == nil {
		return c, "", router.ErrNoWorker
	}
	b := buffers.Get().(*rendered)
	defer buffers.Put(b)
	q, text := p.read(ctx, b, endpoint, req, body)
	c, err = r.Would(now, q.with(hints).Ask)
	return c, text, err
}

// ask reads a request, and counts how that went.
func (p *Picker) ask(ctx context.Context, b *rendered, endpoint string, req *openai.Request, body []byte) ask {
	a, result := p.read(ctx, b, endpoint, req, body)
	p.metrics.texts.WithLabelValues(endpoint, result).Inc()
	return a
}

// read renders a request: as the engine does where that is known, and where not all of it is, by our own rules to guess by.
func (p *Picker) read(ctx context.Context, b *rendered, endpoint string, req *openai.Request, body []byte) (a ask, result string) {
	said, result := p.texts.render(ctx, b.text[:0], endpoint, req, body)
	a = ask{Ask: router.Ask{Text: said, Begins: result != wholeText}, single: req.Choices() == 1}
	if a.Begins {
		b.prompt = prompt.Render(b.prompt[:0], req.Op, req, body)
		a.Prompt = b.prompt
	}
	if said != nil {
		b.text = said
		a.Root = p.root(endpoint, req.Model, text.Salt(req, body))
	}
	return a, result
}

// root of a prompt: beside its text it shares blocks only with what has the same adapter and salt.
func (p *Picker) root(endpoint, model, salt string) uint64 {
	adapter := p.engineName(model)
	if !p.texts.adapter(endpoint, adapter) {
		adapter = ""
	}
	if adapter == "" && salt == "" {
		return 0
	}
	seed, _ := p.Blocks.Seed()
	return blocktree.Root(seed, adapter, salt)
}

// engineName is what the engine calls a model.
func (p *Picker) engineName(model string) string {
	if snap := p.Policy.Load(); snap != nil {
		if m := snap.Model(model); m != nil && m.EngineName != "" {
			return m.EngineName
		}
	}
	return model
}

// ask is the question to a router. single: one prompt has one answer; only then what the engine reports of it is of this prompt
// alone.
type ask struct {
	router.Ask
	single bool
}

// rendered are buffers that are used again: a rendered prompt is as large as the request, and is needed only while it is
// picked for.
type rendered struct{ prompt, text []byte }

var buffers = sync.Pool{New: func() any { return &rendered{prompt: []byte{}, text: []byte{}} }}

// Indexes says how much is known of what the workers hold, by endpoint and address.
func (p *Picker) Indexes() []Index {
	all := p.texts.list()
	for i := range all {
		if at, since, is := p.checks.doubts(all[i].Addr); is && all[i].State == Indexed {
			all[i].State, all[i].Cause, all[i].Reason, all[i].Since = at.state, at.cause, at.reason, since
		}
	}
	return all
}

// pick is Pick for a rendered prompt, and tells metrics and traces of it.
func (p *Picker) pick(ctx context.Context, now time.Time, endpoint string, q ask) (choice router.Choice, err error) {
	if p.Tracer != nil {
		_, span := p.Tracer.Start(ctx, "pick")
		defer func() {
			describe(span, endpoint, choice, err)
			span.End()
		}()
	}
	began := time.Now()
	choice, err = p.choose(now, endpoint, q.Ask)
	p.metrics.picked(endpoint, choice, err, time.Since(began))
	switch {
	case errors.Is(err, router.ErrBusy):
		return choice, err
	case errors.Is(err, router.ErrNoneEligible):
		return choice, fmt.Errorf("none of the workers that the gateway named serves the endpoint %q", endpoint)
	case err != nil:
		return choice, fmt.Errorf("no worker of the endpoint %q is ready", endpoint)
	}
	if choice.Announced && q.single && (q.Root == 0 || p.texts.tellsRoots(choice.Addrs[0])) {
		p.watch(endpoint, &choice, len(q.Text))
	}
	return choice, nil
}

func (p *Picker) choose(now time.Time, endpoint string, ask router.Ask) (router.Choice, error) {
	r := p.router(endpoint)
	if r == nil { // the policy has only just named it, so no worker of it can be ready
		return router.Choice{}, router.ErrNoWorker
	}
	return r.Pick(now, ask)
}

// router is nil for an endpoint that no policy has named.
func (p *Picker) router(endpoint string) *router.Router { return (*p.routers.Load())[endpoint] }
