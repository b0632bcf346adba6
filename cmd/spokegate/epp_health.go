package main

import (
	"context"
	"sync"
	"time"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
)

// eppHealth says how a picker is. It lives from the start. It is ready from when it first knew what there is to pick from, to its
// end: a pool that is empty later is answered by the picker, in its own words.
type eppHealth struct {
	server *epp.Health
	of     *standalone

	mu       sync.Mutex
	known    bool
	draining bool
	waits    bool   // another leads
	refused  string // why the policy's last content is not in force
}

func newEPPHealth(s *standalone) *eppHealth { return &eppHealth{server: epp.NewHealth(), of: s} }

// run waits until the workers are known.
func (h *eppHealth) run(ctx context.Context) error {
	again := time.NewTicker(time.Second) // for a file that lists nobody
	defer again.Stop()
	for {
		workers, policy := h.of.fleet.Changed(), h.of.policy.Changed()
		if h.knows() {
			h.learned()
			return nil
		}
		select {
		case <-workers:
		case <-policy:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// knows says that there is somebody to pick, or that a file or a pool has nobody on purpose.
func (h *eppHealth) knows() bool {
	if h.of.policy.Load() == nil {
		return false
	}
	if len(h.of.fleet.Pickable(h.of.endpoint)) > 0 {
		return true
	}
	if h.of.listed != nil {
		st := h.of.listed.Status()
		return st.Read && st.Workers == 0 && st.Problem == ""
	}
	return h.of.pool.empty()
}

func (h *eppHealth) learned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = true
	h.tell()
}

// led notes whether this picker is the one that gateways should ask.
func (h *eppHealth) led(leads bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = !leads
	h.tell()
}

// tell says what probes get to hear. The lock is held.
func (h *eppHealth) tell() { h.server.SetReady(h.known && !h.draining && !h.waits) }

// drain says no from now on, but for liveness.
func (h *eppHealth) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.tell()
}

// judged notes what became of the policy's content.
func (h *eppHealth) judged(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = ""
	if err != nil {
		h.refused = err.Error()
	}
}

// report answers /readyz.
func (h *eppHealth) report() (r report) {
	h.mu.Lock()
	known, draining, refused := h.known, h.draining, h.refused
	h.mu.Unlock()
	s := h.of
	r.say(!draining, "gateways: %s", map[bool]string{false: "may ask", true: "shall turn away, it ends"}[draining])
	switch {
	case s.policy.Load() != nil && s.source == nil:
		r.say(true, "policy: the defaults")
	default:
		r.say(s.policy.Load() != nil, "policy: of %s", s.eppFlags.policy)
	}
	if refused != "" {
		r.note("policy: refused: %s", refused)
	}
	r.say(known, "workers: %s", map[bool]string{true: "known", false: "none has been ready yet"}[known])
	r.note("endpoint %s: %d workers can be picked", s.endpoint, len(s.fleet.Pickable(s.endpoint)))
	if s.listed != nil {
		st := s.listed.Status()
		r.note("file %s: %d workers", s.workers, st.Workers)
		if st.Problem != "" {
			r.note("file %s: %s", s.workers, st.Problem)
		}
	}
	s.pool.report(&r)
	h.away(&r)
	all := health{fleet: s.fleet, indexes: s.picker.Indexes}
	all.degraded(&r)
	all.indexed(&r)
	return r
}

// away tells which workers cannot be picked, and why.
func (h *eppHealth) away(r *report) {
	n := 0
	for _, w := range h.of.fleet.View().Workers {
		if w.State != fleet.Ready {
			if n++; n <= mostDegraded {
				r.note("worker %s: %s: %s", w.Name, w.State, w.Status().Reason)
			}
		}
	}
	if n > mostDegraded {
		r.note("workers: %d more are not ready", n-mostDegraded)
	}
}
