package main

import (
	"context"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// recut is how often what revoked keys have running is looked for, beside at every change of the policy: a request may have been
// judged by the policy before, and open its flight after the change.
const recut = time.Second

// followPolicy takes to other parts what a policy says of them: Envoy's endpoints, the issuers whose keys are kept, and the
// flights of revoked keys.
func (d *door) followPolicy(ctx context.Context) error {
	again := time.NewTicker(recut)
	defer again.Stop()
	for {
		changed := d.policy.Changed()
		snap := d.policy.Load()
		d.control.SetEndpoints(endpointNames(snap))
		d.issuerKeys.Follow(issuersOf(snap))
		for in := true; in; {
			d.cutRevoked(snap)
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				in = false
			case <-again.C:
			}
		}
	}
}

// cutRevoked has workers end what revoked keys still have running, unless the policy lets it finish.
func (d *door) cutRevoked(snap *policy.Snapshot) {
	if !snap.CutsRevoked() {
		return
	}
	n := d.flights.Revoke(snap.Revoked, func(endpoint, admission string) { d.shims.Cancel(endpoint, admission, "revoked") })
	if n > 0 {
		d.log.Info("running requests of revoked keys are cut", "requests", n)
	}
}

func issuersOf(snap *policy.Snapshot) (list []identity.IssuerConfig) {
	for _, i := range snap.Issuers() {
		list = append(list, i.IssuerConfig)
	}
	return list
}

func endpointNames(s *policy.Snapshot) []string {
	if s == nil { // none yet
		return nil
	}
	var names []string
	for _, e := range s.Endpoints() {
		names = append(names, e.Name)
	}
	return names
}
