package envoy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/fleet"
)

// Server keeps the door's own Envoy configured over ADS. It follows the fleet, and tells the fleet what Envoy holds of it.
type Server struct {
	door  Door
	fleet *fleet.Fleet
	log   *slog.Logger

	cache cachev3.SnapshotCache
	ads   serverv3.Server
	stop  context.CancelFunc // ends the streams' handlers
	acks  *acks

	mu        sync.Mutex // guards all below
	endpoints []string
	renamed   chan struct{} // closed when endpoints changes
}

// NewServer prepares a server; nothing happens before Run. log and registerer may be nil.
func NewServer(d Door, f *fleet.Fleet, log *slog.Logger, registerer prometheus.Registerer) *Server {
	if log == nil {
		log = slog.Default()
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		door: d.withDefaults(), fleet: f, log: log, stop: stop, renamed: make(chan struct{}),
		cache: cachev3.NewSnapshotCache(true, oneNode{}, quiet{log}),
	}
	var needed []string
	for _, secret := range s.door.workerSecrets() {
		needed = append(needed, secret.Name)
	}
	s.acks = newAcks(f.Acked, log, newMetrics(registerer), needed...)
	s.ads = serverv3.NewServer(ctx, s.cache, s.acks.callbacks())
	return s
}

// Register offers ADS on g, which must listen on the door's socket.
func (s *Server) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s.ads)
}

// ServerOptions are the door's, with room for its logs.
func (s *Server) ServerOptions() []grpc.ServerOption {
	return append(s.door.ServerOptions(), roomForLogs())
}

// SetEndpoints names the endpoints of the policy. Each becomes a cluster.
func (s *Server) SetEndpoints(names []string) {
	names = unique(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(names, s.endpoints) {
		return
	}
	s.endpoints = names
	close(s.renamed)
	s.renamed = make(chan struct{})
}

// Connected says whether an Envoy is on the line.
func (s *Server) Connected() bool { return s.acks.connected() }

// AwaitDeath is for one caller. It returns when an Envoy that was on the line has died, taking along its requests, which are
// all that were admitted before the time that it returns; or with ctx's error. A stream that broke is no death: this process
// may have been stopped for a while, and Envoy goes on with what it has. Where the kernel does not tell who was on the line,
// the end of its stream counts as its death.
func (s *Server) AwaitDeath(ctx context.Context) (time.Time, error) {
	return awaitDeath(ctx, s.acks.gone, s.acks)
}

// Run rebuilds the configuration whenever the fleet or the endpoints change, until ctx is done. Then it ends Envoy's
// streams; Envoy goes on with what it has.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	var version uint64
	var named <-chan struct{}
	for {
		changed := s.fleet.Changed()
		names, renamed := s.wanted()
		if view := s.fleet.View(); view.Version != version || renamed != named { // else it was Envoy's own word that woke us
			if err := s.publish(ctx, view, names); err != nil && ctx.Err() == nil {
				return err
			}
			version, named = view.Version, renamed
		}
		select {
		case <-changed:
		case <-renamed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Server) wanted() ([]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints, s.renamed
}

// publish hands the whole configuration to the cache, which sends what changed.
func (s *Server) publish(ctx context.Context, view *fleet.View, endpoints []string) error {
	snap := snapshot(s.door.Resources(view, endpoints))
	if err := snap.ConstructVersionMap(); err != nil {
		return err
	}
	// Expected before it is sent, so that no answer comes too early.
	s.acks.expect(view.Version, snap.GetVersionMap(resource.EndpointType))
	return s.cache.SetSnapshot(ctx, nodeKey, snap)
}

// snapshot versions each kind of resource by its content.
func snapshot(all map[resource.Type][]types.Resource) *cachev3.Snapshot {
	snap := &cachev3.Snapshot{}
	for kind, slot := range map[resource.Type]types.ResponseType{
		resource.ListenerType: types.Listener, resource.RouteType: types.Route,
		resource.ClusterType: types.Cluster, resource.EndpointType: types.Endpoint, resource.SecretType: types.Secret,
	} {
		snap.Resources[slot] = cachev3.NewResources(version(all[kind]), all[kind])
	}
	return snap
}

func version(rs []types.Resource) string {
	h := sha256.New()
	for _, r := range rs {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r)
		part := sha256.Sum256(b)
		h.Write(part[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
