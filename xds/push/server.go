// Package push is the hub's half of policy distribution: it sends every door the cut of its spoke over delta xDS, and knows who
// holds what.
//
// It promises that a door gets one revision at a time, whole or not at all, and the next when it has answered; that what a door
// has refused is not sent to it again until something has changed; that a door which says what it has is sent the difference,
// whoever restarted; that a door which does not read, or does not answer, delays nobody else; and that doors are who their
// certificates say. What a stream holds does not grow with the policy, and encoded bytes are shared by all.
//
// Beside the policy it takes doors' reports (api/hub/v1), and tells each what limits have counted elsewhere.
//
// It does not decide what a spoke's cut is ([Cuts] does), and keeps nothing on disk: after a restart it knows a door again when
// that has called.
package push

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/delta"
)

// Cuts is where the policy comes from.
type Cuts interface {
	// Cut is what a spoke gets of the latest revision; nil: nothing yet.
	Cut(spoke string) *policy.Cut
	// Changed is closed at the next revision. Take the channel first, then the cut.
	Changed() <-chan struct{}
}

// Config configures a Server.
type Config struct {
	Cuts Cuts
	// Certificates are what the hub and doors know each other by; nil: doors show Token, which is for loopback and Unix sockets.
	Certificates *mtls.Keeper
	Token        string
	// Stall is how long a door may take to receive a revision and to answer. Default 5 minutes.
	Stall time.Duration
	// Streams bounds how many there are at one time, of each kind. Default 10,000.
	Streams int
	// MaxAge ends connections that are older, give or take a tenth. Default 0: none.
	MaxAge time.Duration
	// Every is how often doors are told what was used elsewhere, at most. Default 1 s.
	Every      time.Duration
	Now        func() time.Time      // default: time.Now
	Log        *slog.Logger          // default: slog.Default()
	Registerer prometheus.Registerer // nil: metrics are kept and shown nowhere
}

// Server is the hub's half.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	hubv1.UnimplementedSpokesServer

	cfg     Config
	metrics *metrics
	plans   plans
	holders holders
	used    *used

	closing chan struct{} // closed when Run ends
	gate    sync.Mutex    // guards what follows
	pushes  int           // streams that are open
	reports int
	shares  map[[sha256.Size]byte]int // streams of each certificate
	closed  bool
	open    sync.WaitGroup
}

// NewServer makes a server. It serves when it is registered, and until Run ends.
func NewServer(cfg Config) (*Server, error) {
	if cfg.Certificates == nil && cfg.Token == "" {
		return nil, errors.New("push: doors need certificates, or a token on this machine")
	}
	for d, standard := range map[*time.Duration]time.Duration{&cfg.Stall: 5 * time.Minute, &cfg.Every: time.Second} {
		if *d <= 0 {
			*d = standard
		}
	}
	if cfg.Streams <= 0 {
		cfg.Streams = 10_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Server{cfg: cfg, holders: holders{byNode: map[string]*holder{}}, used: newUsed(rand.Text()), closing: make(chan struct{})}
	s.metrics = newMetrics(cfg.Registerer, s)
	return s, nil
}

// Options are those that the gRPC server needs which it is registered with: who may connect, how bytes are shared, and how dead
// connections are noticed.
func (s *Server) Options() []grpc.ServerOption {
	age := s.cfg.MaxAge
	if age == 0 {
		age = math.MaxInt64
	}
	o := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(delta.MostAsked),
		grpc.MaxConcurrentStreams(8), grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if s.cfg.Certificates != nil {
		anyone := func(*x509.Certificate) error { return nil } // whose it must be, the node's id tells
		o = append(o, grpc.Creds(s.cfg.Certificates.Listen(anyone)))
	}
	return o
}

// Register offers the services on g, which was made with Options.
func (s *Server) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	hubv1.RegisterSpokesServer(g, s)
}

// Run returns when ctx is done and every stream has ended.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	s.gate.Lock()
	s.closed = true
	close(s.closing)
	s.gate.Unlock()
	s.open.Wait()
	return nil
}

// enter takes one of the places for streams.
func (s *Server) enter(n *int) (leave func(), err error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	switch {
	case s.closed:
		return nil, status.Error(codes.Unavailable, "the hub stops")
	case *n >= s.cfg.Streams:
		return nil, s.refuse("full", "", status.Errorf(codes.ResourceExhausted, "there are %d streams already", *n))
	}
	*n++
	s.open.Add(1)
	return func() {
		s.gate.Lock()
		defer s.gate.Unlock()
		*n--
		s.open.Done()
	}, nil
}

// firstWait is how long a caller may take to say who it is.
const firstWait = 30 * time.Second

// DeltaAggregatedResources serves one door's policy.
func (s *Server) DeltaAggregatedResources(rpc discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	leave, err := s.enter(&s.pushes)
	if err != nil {
		return err
	}
	defer leave()
	caller, err := s.caller(rpc.Context())
	if err != nil {
		return s.refuse("identity", from(rpc.Context()), err)
	}
	unshare, err := s.share(caller)
	if err != nil {
		return err
	}
	defer unshare()
	st := &stream{server: s, rpc: rpc, nonce: 1, in: make(chan *discoveryv3.DeltaDiscoveryRequest), out: make(chan message),
		failed: make(chan error, 1), superseded: make(chan struct{})}
	go st.receive()
	first, err := awaitFirst(rpc.Context(), st.in, st.failed, s.closing)
	if err != nil {
		return err
	}
	if st.spoke, st.door, err = s.named(caller, first.GetNode().GetId()); err != nil {
		return s.refuse("identity", from(rpc.Context()), err)
	}
	go st.send()
	st.log = s.cfg.Log.With("spoke", st.spoke, "door", st.door)
	instance := first.GetNode().GetMetadata().GetFields()[delta.MetadataInstance].GetStringValue()
	s.holders.join(st, from(rpc.Context()), short(instance), s.cfg.Now())
	defer func() { s.holders.leave(st, s.cfg.Now()) }()
	st.log.Info("a door follows the policy", "from", from(rpc.Context()))
	expiry, stop := expiry(caller, s.cfg.Now())
	defer stop()
	err = st.run(first, expiry)
	st.log.Info("a door is gone", "cause", cause(err))
	return ended(err)
}

// awaitFirst is a stream's first message.
func awaitFirst[M any](ctx context.Context, in chan M, failed chan error, closing chan struct{}) (first M, err error) {
	wait := time.NewTimer(firstWait)
	defer wait.Stop()
	select {
	case first = <-in:
		return first, nil
	case err = <-failed:
		return first, ended(err)
	case <-wait.C:
		return first, status.Error(codes.DeadlineExceeded, "the caller does not say who it is")
	case <-closing:
		return first, status.Error(codes.Unavailable, "the hub stops")
	case <-ctx.Done():
		return first, status.FromContextError(ctx.Err()).Err()
	}
}

// ended turns the orderly end of a stream into no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
