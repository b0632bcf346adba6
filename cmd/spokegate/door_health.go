package main

import (
	"context"
	"strings"
	"time"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/jwks"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/follow"
)

// health answers a door's /readyz: 200 when requests can be served. It asks for facts each time, and keeps none.
type health struct {
	agent     func() xds.Status
	hub       *follow.Hub   // nil: none
	tooOld    func() string // why nobody is admitted; "": the policy is not too old
	policy    *policy.Current
	connected func() bool // Envoy is on the line
	gateway   string      // whose Envoy it is; empty: the door's own
	envoy     *envoyAdmin // its admin page; nil: it has none
	fleet     *fleet.Fleet
	issuers   func() []jwks.Status
	counters  func() string
	indexes   func() []epp.Index
	journal   func(*report)
}

func (h health) report() report { return h.judge(false) }

// any answers /readyz/any, for balancers and Kubernetes: one endpoint without workers must not take the others' door away.
func (h health) any() report { return h.judge(true) }

func (h health) judge(any bool) (r report) {
	st, snap := h.agent(), h.policy.Load()
	r.say(snap != nil, "policy: revision %d from %s", st.Revision, st.From)
	if st.FromDisk {
		r.note("policy: the last good one, from disk; its source has not been heard since the start")
	}
	if st.LastNack != "" {
		r.note("policy: a later one was refused at %s: %s", st.LastNackAt.Format(time.RFC3339), st.LastNack)
	}
	if st.Revoked > 0 {
		r.note("policy: %d keys are revoked on this spoke alone", st.Revoked)
	}
	if st.RevokedErr != "" {
		r.note("policy: %s", st.RevokedErr)
	}
	h.hubOf(&r)
	h.issuersOf(&r)
	h.envoyOf(&r)
	if snap != nil {
		h.endpointsOf(&r, snap.Endpoints(), any)
	}
	h.degraded(&r)
	h.indexed(&r)
	r.note("limits: %s", h.counters())
	h.journal(&r)
	return r
}

// endpointsOf tells how many workers each endpoint has. Each must have one; with any, one of them.
func (h health) endpointsOf(r *report, endpoints []*policy.Endpoint, any bool) {
	served := 0
	for _, e := range endpoints {
		n := len(h.fleet.Pickable(e.Name))
		if n > 0 {
			served++
		}
		if any && n == 0 {
			r.note("endpoint %s: 0 workers can be picked", e.Name)
		} else {
			r.say(n > 0, "endpoint %s: %d workers can be picked", e.Name, n)
		}
	}
	if any && len(endpoints) > 0 {
		r.say(served > 0, "endpoints: %d of %d have a worker", served, len(endpoints))
	}
}

// envoyOf tells whether Envoy takes clients. One that drains is still on the line, and says so on its admin page.
func (h health) envoyOf(r *report) {
	if !h.connected() {
		r.say(false, "envoy: not connected")
		return
	}
	connected := "envoy: connected"
	if h.gateway != "" {
		connected = "envoy: " + h.gateway + " configures it, and it connects with its first request"
	}
	if h.envoy == nil {
		r.say(true, "%s", connected)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	word, err := h.envoy.readiness(ctx)
	if err != nil {
		r.note("envoy: its admin page does not answer, so that nobody sees whether it drains: %v", err)
	}
	if word == "" {
		r.say(true, "%s", connected)
	} else {
		r.say(false, "envoy: %s", word)
	}
}

// mostDegraded is how many degraded workers are told of by name.
const mostDegraded = 20

// degraded tells which workers are worse than they seem. They serve all the same.
func (h health) degraded(r *report) {
	n := 0
	for _, w := range h.fleet.View().Workers {
		if worse := w.Status().Degraded; len(worse) > 0 {
			if n++; n <= mostDegraded {
				r.note("worker %s: degraded (%s)", w.Name, strings.Join(worse, "; "))
			}
		}
	}
	if n > mostDegraded {
		r.note("workers: %d more are degraded", n-mostDegraded)
	}
}

// indexed tells of how many workers the picker knows what they hold, and of which it does not.
func (h health) indexed(r *report) {
	exact, others := 0, 0
	indexes, workers := h.indexes(), h.fleet.View().Workers
	for _, w := range workers {
		i := indexOf(w, indexes)
		if i.State == epp.Indexed {
			exact++
		} else if others++; others <= mostDegraded {
			r.note("worker %s: index %s", w.Name, i)
		}
	}
	if others > mostDegraded {
		r.note("workers: what %d more hold is not known exactly", others-mostDegraded)
	}
	r.note("workers: of %d of %d it is known exactly what they hold", exact, len(workers))
}

// issuersOf tells how it stands with issuers of JWTs. None of them decides: other credentials are taken all the same.
func (h health) issuersOf(r *report) {
	for _, i := range h.issuers() {
		switch {
		case i.Keys == 0 && i.Problem == "":
			r.note("issuer %s: no keys yet from %s", i.Name, i.Source)
		case i.Keys == 0:
			r.note("issuer %s: no keys, so none of its tokens is taken: %s", i.Name, i.Problem)
		case i.Problem != "":
			r.note("issuer %s: %d keys of %s; they cannot be read anew: %s", i.Name, i.Keys, i.ReadAt.Format(time.RFC3339), i.Problem)
		default:
			r.note("issuer %s: %d keys from %s", i.Name, i.Keys, i.Source)
		}
	}
}

// endFlightsOfDeadEnvoy ends what an Envoy left behind that was killed: nothing else will tell.
func (d *door) endFlightsOfDeadEnvoy(ctx context.Context) error {
	for {
		died, err := d.control.AwaitDeath(ctx)
		if err != nil {
			return nil // the door stops
		}
		n := d.flights.Lose(died, "envoy_gone")
		d.log.Warn("Envoy is gone", "flights_ended", n)
	}
}
