package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// TestPickableMeansServed: a worker joins for an endpoint that the policy names only later. From the moment at which it can be
// picked every thread of Envoy finds it.
func TestPickableMeansServed(t *testing.T) {
	for kind, encrypted := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(kind, func(t *testing.T) { pickableMeansServed(t, encrypted) })
	}
}

func pickableMeansServed(t *testing.T, encrypted bool) {
	authority := mtlstest.New(t)
	r := newRig(t, false, func(d *Door) {
		d.Concurrency = 4
		if encrypted {
			d.WorkerTLS, d.Spoke = authority.Issue(t, "door.test"), "north"
		}
	})
	r.serveDoor()
	var endpoints []string
	if !encrypted { // else the first one brings the certificates along
		endpoints = append(endpoints, "large")
	}
	r.server.SetEndpoints(endpoints)
	r.startEnvoy()
	for i := range 25 {
		name := fmt.Sprintf("late-%d", i)
		r.joinWorker(fleet.Worker{Name: name, Endpoint: name}, r.workerTLS(authority, encrypted, name))
		if !encrypted {
			r.awaitAcked()
		}
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

// workerTLS is what a worker with this name speaks; nil where nothing is encrypted.
func (r *rig) workerTLS(a *mtlstest.Authority, encrypted bool, name string) *tls.Config {
	if !encrypted {
		return nil
	}
	keeper, err := mtls.Open(a.Issue(r.t, name), slog.New(slog.NewTextHandler(r.log, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	return keeper.Server(func(*x509.Certificate) error { return nil }, "http/1.1")
}

// awaitAcked waits until Envoy has all of the present view that it is told of.
func (r *rig) awaitAcked() {
	r.eventually("acknowledged", func() bool {
		r.server.acks.mu.Lock()
		defer r.server.acks.mu.Unlock()
		return r.server.acks.has["large"] == r.fleet.View().Version
	})
}
