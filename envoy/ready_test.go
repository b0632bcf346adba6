package envoy

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestPickableMeansServed: a worker joins for an endpoint that the policy names only later. From the moment at which it can be
// picked every thread of Envoy finds it.
func TestPickableMeansServed(t *testing.T) {
	r := newRig(t, false, func(d *Door) { d.Concurrency = 4 })
	r.serveDoor()
	r.server.SetEndpoints([]string{"large"})
	r.startEnvoy()
	endpoints := []string{"large"}
	for i := range 25 {
		name := fmt.Sprintf("late-%d", i)
		r.addWorker(name, name)
		r.awaitAcked()
		if len(r.fleet.Pickable(name)) != 0 {
			t.Fatalf("%s can be picked, and no cluster is there", name)
		}
		endpoints = append(endpoints, name)
		r.server.SetEndpoints(endpoints)
		for limit := time.After(patience); ; {
			changed := r.fleet.Changed()
			if len(r.fleet.Pickable(name)) == 1 {
				break
			}
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("%s can never be picked", name)
			}
		}
		var all sync.WaitGroup
		for range 8 { // connections spread over the threads
			all.Go(func() {
				if a := r.post(t, r.workers[name].addr, "x-test-endpoint", name, "connection", "close"); a.status != 200 {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
			})
		}
		all.Wait()
	}
}

// awaitAcked waits until Envoy has all of the present view that it is told of.
func (r *rig) awaitAcked() {
	r.eventually("acknowledged", func() bool {
		r.server.acks.mu.Lock()
		defer r.server.acks.mu.Unlock()
		return r.server.acks.has["large"] == r.fleet.View().Version
	})
}
