package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// acks follows what Envoy holds of the endpoints. A response is held when it was acknowledged by its nonce, never because it
// was sent: what Envoy refused, or has not looked at yet, must not be picked.
type acks struct {
	acked   func(version uint64)
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex        // guards all below
	view    uint64            // version of the fleet's view that is published
	want    map[string]string // endpoint resources of that view, name → version
	streams map[int64]*stream
	gone    chan struct{} // gets one when the last stream ends, unless the one before was not taken yet
	caller  process       // who opened the newest stream
	lost    process       // who had opened the last stream that ended
}

// stream is one ADS stream of an Envoy.
type stream struct {
	sent map[string]sent   // by nonce, not answered yet
	held map[string]string // endpoint resources that Envoy holds, name → version
}

// sent is one response.
type sent struct {
	kind    string
	updated map[string]string
	removed []string
}

func newAcks(acked func(uint64), log *slog.Logger, m *metrics) *acks {
	return &acks{acked: acked, log: log, metrics: m, streams: map[int64]*stream{}, gone: make(chan struct{}, 1)}
}

// callbacks are go-control-plane's. Envoy uses the delta protocol only.
func (a *acks) callbacks() serverv3.Callbacks {
	return serverv3.CallbackFuncs{
		DeltaStreamOpenFunc:    func(ctx context.Context, id int64, _ string) error { a.open(id, peerProcess(ctx)); return nil },
		DeltaStreamClosedFunc:  func(id int64, _ *corev3.Node) { a.close(id) },
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error { a.request(id, r); return nil },
		StreamDeltaResponseFunc: func(id int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
			a.response(id, r)
		},
		StreamOpenFunc: func(context.Context, int64, string) error {
			return fmt.Errorf("envoy: only the delta protocol is spoken here")
		},
	}
}

// expect says which endpoints belong to a view of the fleet. When Envoy holds them already, the view is acknowledged.
func (a *acks) expect(view uint64, want map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view, a.want = view, want
	a.check()
}

func (a *acks) open(id int64, caller process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.caller = caller
	a.streams[id] = &stream{sent: map[string]sent{}, held: map[string]string{}}
	a.metrics.connected.Set(1)
	a.log.Info("envoy connected", "stream", id)
}

func (a *acks) close(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.streams[id]; !ok {
		return
	}
	delete(a.streams, id)
	if len(a.streams) > 0 {
		return
	}
	a.lost = a.caller
	a.metrics.connected.Set(0)
	a.log.Warn("envoy disconnected", "stream", id)
	select {
	case a.gone <- struct{}{}:
	default:
	}
}

func (a *acks) response(id int64, r *discoveryv3.DeltaDiscoveryResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.streams[id]
	if st == nil {
		return
	}
	s := sent{kind: r.TypeUrl, updated: map[string]string{}, removed: r.RemovedResources}
	for _, res := range r.Resources {
		s.updated[res.Name] = res.Version
	}
	st.sent[r.Nonce] = s
}

func (a *acks) request(id int64, r *discoveryv3.DeltaDiscoveryRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.streams[id]
	if st == nil {
		return
	}
	if r.TypeUrl == resource.EndpointType {
		for name, version := range r.InitialResourceVersions { // a stream anew, an Envoy as before
			st.held[name] = version
		}
	}
	if s, ok := st.sent[r.ResponseNonce]; ok {
		delete(st.sent, r.ResponseNonce)
		a.answer(st, s, r)
	}
	if r.TypeUrl == resource.EndpointType {
		for _, name := range r.ResourceNamesUnsubscribe {
			delete(st.held, name)
		}
	}
	a.check()
}

// answer takes Envoy's word on one response.
func (a *acks) answer(st *stream, s sent, r *discoveryv3.DeltaDiscoveryRequest) {
	if r.ErrorDetail != nil {
		a.metrics.nacks.WithLabelValues(short(s.kind)).Inc()
		a.log.Error("envoy refused its configuration and keeps the one before", "type", short(s.kind), "reason", r.ErrorDetail.Message)
		return
	}
	a.metrics.acks.WithLabelValues(short(s.kind)).Inc()
	if s.kind != resource.EndpointType {
		return
	}
	for name, version := range s.updated {
		st.held[name] = version
	}
	for _, name := range s.removed {
		delete(st.held, name)
	}
}

// check acknowledges the view when one Envoy holds all of its endpoints.
func (a *acks) check() {
	for _, st := range a.streams {
		if holds(st.held, a.want) {
			a.acked(a.view)
			return
		}
	}
}

func holds(held, want map[string]string) bool {
	for name, version := range want {
		if held[name] != version {
			return false
		}
	}
	return true
}

func (a *acks) connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.streams) > 0
}

// lostCaller is whose stream ended last, and whether that process has a stream again.
func (a *acks) lostCaller() (lost process, back bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lost, len(a.streams) > 0 && a.caller == a.lost
}
