package main

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
)

// health answers a door's /readyz: 200 when requests can be served. It asks for facts each time, and keeps none.
type health struct {
	agent     func() xds.Status
	policy    *policy.Current
	connected func() bool // Envoy is on the line
	fleet     *fleet.Fleet
	counters  func() string
	journal   func(*report)
}

func (h health) report() (r report) {
	st, snap := h.agent(), h.policy.Load()
	r.say(snap != nil, "policy: revision %d from %s", st.Revision, st.From)
	if st.FromDisk {
		r.note("policy: the last good one, from disk; its source has not been heard since the start")
	}
	if st.LastNack != "" {
		r.note("policy: a later one was refused at %s: %s", st.LastNackAt.Format(time.RFC3339), st.LastNack)
	}
	if h.connected() {
		r.say(true, "envoy: connected")
	} else {
		r.say(false, "envoy: not connected")
	}
	if snap != nil {
		for _, e := range snap.Endpoints() {
			n := len(h.fleet.Pickable(e.Name))
			r.say(n > 0, "endpoint %s: %d workers can be picked", e.Name, n)
		}
	}
	r.note("limits: %s", h.counters())
	h.journal(&r)
	return r
}

// followPolicy tells Envoy's configuration which endpoints there are.
func (d *door) followPolicy(ctx context.Context) error {
	for {
		changed := d.policy.Changed()
		d.control.SetEndpoints(endpointNames(d.policy.Load()))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
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
