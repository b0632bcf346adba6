package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// acks follows what Envoy holds of the endpoints. A response is held when it was acknowledged by its nonce, never because it
// was sent: what Envoy refused, or has not looked at yet, must not be picked.
//
// Envoy asks for an endpoint's workers once it knows the cluster, and its main thread hands both to the worker threads before
// it acknowledges. A worker thread takes what it was handed before it reads its next message, such as an answer of ours that
// names a worker: so what was acknowledged can be picked.
type acks struct {
	acked   func(endpoints map[string]uint64)
	log     *slog.Logger
	metrics *metrics
	needed  []string // secrets without which no worker is reached

	mu      sync.Mutex        // guards all below
	view    uint64            // version of the fleet's view that is published
	want    map[string]string // endpoint resources of that view, name → version
	has     map[string]uint64 // endpoint → version of the view whose workers Envoy has
	streams map[int64]*stream
	left    []process     // whose streams have ended, and who may have died
	gone    chan struct{} // gets one when a stream ends, unless the one before was not taken yet
}

// stream is one ADS stream of an Envoy.
type stream struct {
	caller process
	opened time.Time
	sent   map[string]sent   // by nonce, not answered yet
	held   map[string]string // endpoint resources that Envoy holds, name → version
	secret map[string]string // likewise secrets
}

// sent is one response.
type sent struct {
	kind    string
	updated map[string]string
}

func newAcks(acked func(map[string]uint64), log *slog.Logger, m *metrics, needed ...string) *acks {
	return &acks{acked: acked, log: log, metrics: m, needed: needed, has: map[string]uint64{}, streams: map[int64]*stream{}, gone: make(chan struct{}, 1)}
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

// expect says which endpoints belong to a view of the fleet. Those that Envoy holds already are acknowledged.
func (a *acks) expect(view uint64, want map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view, a.want = view, want
	maps.DeleteFunc(a.has, func(endpoint string, _ uint64) bool { return want[ClusterName(endpoint)] == "" })
	a.check()
}

func (a *acks) open(id int64, caller process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams[id] = &stream{caller: caller, opened: time.Now(), sent: map[string]sent{}, held: map[string]string{}, secret: map[string]string{}}
	a.metrics.connected.Set(1)
	a.log.Info("envoy connected", "stream", id)
}

func (a *acks) close(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st, ok := a.streams[id]
	if !ok {
		return
	}
	delete(a.streams, id)
	if len(a.streams) == 0 {
		a.metrics.connected.Set(0)
	}
	a.log.Warn("envoy disconnected", "stream", id)
	a.left = append(a.left, st.caller)
	select {
	case a.gone <- struct{}{}:
	default:
	}
}

// death looks for an Envoy that has died and not been told of. waiting: some have left that still run, and that have no stream
// yet.
func (a *acks) death() (dead, waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = slices.DeleteFunc(a.left, func(p process) bool {
		back := a.calls(p)
		over := !back && !p.alive()
		dead = dead || over
		return back || over
	})
	return dead, len(a.left) > 0
}

// succession is when the first of those came who are on the line; now, when nobody is. What was before was a dead Envoy's: a
// successor does not listen before it has opened a stream.
func (a *acks) succession(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, st := range a.streams {
		if st.opened.Before(now) {
			now = st.opened
		}
	}
	return now
}

// calls says whether a process has a stream.
func (a *acks) calls(p process) bool {
	for _, st := range a.streams {
		if st.caller == p {
			return true
		}
	}
	return false
}

func (a *acks) response(id int64, r *discoveryv3.DeltaDiscoveryResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.streams[id]
	if st == nil {
		return
	}
	s := sent{kind: r.TypeUrl, updated: map[string]string{}}
	for _, res := range r.Resources {
		s.updated[res.Name] = res.Version
	}
	st.sent[r.Nonce] = s
	for _, name := range r.RemovedResources { // a cluster takes its endpoints along, which have its name
		if r.TypeUrl == resource.EndpointType || r.TypeUrl == resource.ClusterType {
			delete(st.held, name)
			delete(a.has, EndpointOf(name))
		}
	}
}

func (a *acks) request(id int64, r *discoveryv3.DeltaDiscoveryRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.streams[id]
	if st == nil {
		return
	}
	if holds := st.of(r.TypeUrl); holds != nil {
		maps.Copy(holds, r.InitialResourceVersions) // a stream anew, an Envoy as before
	}
	if s, ok := st.sent[r.ResponseNonce]; ok {
		delete(st.sent, r.ResponseNonce)
		a.answer(st, s, r)
	}
	for _, name := range r.ResourceNamesUnsubscribe {
		delete(st.of(r.TypeUrl), name)
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
	if holds := st.of(s.kind); holds != nil {
		maps.Copy(holds, s.updated)
	}
}

// of is what is kept of the resources of a kind; nil: nothing.
func (s *stream) of(kind string) map[string]string {
	switch kind {
	case resource.EndpointType:
		return s.held
	case resource.SecretType:
		return s.secret
	}
	return nil
}

// check acknowledges the endpoints that an Envoy holds as they are wanted, once it can encrypt to them: a cluster that waits for
// its secrets takes no request. One that is about to change stays acknowledged as it
// was; so do all when a stream breaks, since Envoy keeps them, and asks for them before it listens when it starts anew.
func (a *acks) check() {
	for _, st := range a.streams {
		if slices.ContainsFunc(a.needed, func(name string) bool { return st.secret[name] == "" }) {
			continue
		}
		for name, version := range a.want {
			if st.held[name] == version {
				a.has[EndpointOf(name)] = a.view
			}
		}
	}
	a.acked(maps.Clone(a.has))
}

func (a *acks) connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.streams) > 0
}
