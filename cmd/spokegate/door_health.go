package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/xds"
)

// health answers /readyz: 200 when requests can be served, 503 otherwise, and in both cases why, line by line.
type health struct {
	agent  *xds.Agent
	envoy  *envoy.Server
	fleet  *fleet.Fleet
	policy *policy.Current
	spool  *usage.Spool
}

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	ready, lines := h.report()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
}

func (h *health) report() (ready bool, lines []string) {
	ready = true
	say := func(ok bool, format string, args ...any) {
		mark := "ok  "
		if !ok {
			mark, ready = "FAIL", false
		}
		lines = append(lines, mark+" "+fmt.Sprintf(format, args...))
	}
	note := func(format string, args ...any) { lines = append(lines, "note "+fmt.Sprintf(format, args...)) }

	st := h.agent.Status()
	snap := h.policy.Load()
	say(snap != nil, "policy: revision %d from %s", st.Revision, st.From)
	if st.FromDisk {
		note("policy: the last good one, from disk; its source has not been heard since the start")
	}
	if st.LastNack != "" {
		note("policy: a later one was refused at %s: %s", st.LastNackAt.Format(time.RFC3339), st.LastNack)
	}
	say(h.envoy.Connected(), "envoy: connected")
	if snap != nil {
		for _, e := range snap.Endpoints() {
			n := len(h.fleet.Pickable(e.Name))
			say(n > 0, "endpoint %s: %d workers can be picked", e.Name, n)
		}
	}
	if sp := h.spool.Stats(); sp.Lost > 0 || sp.Err != "" {
		note("spool: %d records lost: %s", sp.Lost, sp.Err)
	}
	return ready, lines
}

// followPolicy tells Envoy's configuration which endpoints there are.
func followPolicy(ctx context.Context, current *policy.Current, control *envoy.Server) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last *policy.Snapshot
	var names []string
	for {
		if snap := current.Load(); snap != last {
			last = snap
			var now []string
			for _, e := range snap.Endpoints() {
				now = append(now, e.Name)
			}
			if !slices.Equal(now, names) {
				names = now
				control.SetEndpoints(names)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// endFlightsOfDeadEnvoy ends what an Envoy left behind that was killed: nothing else will tell.
func endFlightsOfDeadEnvoy(ctx context.Context, control *envoy.Server, flights *flight.Table, log *slog.Logger) error {
	for control.AwaitDeath(ctx) == nil {
		n := flights.Lose(time.Now(), "envoy_gone")
		log.Warn("Envoy is gone", "flights_ended", n)
	}
	return nil
}
