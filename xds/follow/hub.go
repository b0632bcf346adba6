// Package follow is the spoke's half of policy distribution from a hub: [Hub] is a source for the agent (package xds) that
// follows the hub's delta xDS stream, and tells the hub of the door (api/hub/v1).
//
// It promises that a cut is offered only when all of it has arrived and its digest fits, that the hub hears the agent's answer,
// that a hub which is away is tried again every few seconds at least, and that on return only what has changed meanwhile is
// sent. It says since when nothing was heard, also over a restart.
package follow

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/delta"
)

// Config configures a Hub.
type Config struct {
	// Address of the hub: host:port or unix:PATH.
	Address string
	// Certificates are the door's; nil: plain, with Token, for loopback and Unix sockets.
	Certificates *mtls.Keeper
	Token        string
	// Name in the hub's certificate. Empty: the host in Address.
	Name        string
	Spoke, Door string
	Version     string // of this program, for the hub
	// Dir is where it is kept when the hub was heard last. Empty: nowhere.
	Dir string
	// Retry is the longest pause before a hub that is away is tried again. Default 3 s.
	Retry time.Duration
	// Again is the pause before a revision is fetched once more that was refused for no fault of its own. Default 5 s.
	Again time.Duration
	Now   func() time.Time // default: time.Now
	Log   *slog.Logger     // default: slog.Default()
}

func (c *Config) complete() error {
	switch {
	case c.Address == "":
		return errors.New("the hub's address is missing")
	case c.Certificates == nil && c.Token == "":
		return errors.New("the hub wants a certificate, or a token on this machine")
	}
	if _, _, err := delta.ParseNode(delta.Node(c.Spoke, c.Door)); err != nil {
		return err
	}
	c.Retry, c.Again = cmp.Or(c.Retry, 3*time.Second), cmp.Or(c.Again, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return nil
}

// Hub is the source of a spoke that has a hub.
type Hub struct {
	cfg   Config
	conn  *grpc.ClientConn
	heard mark

	// Of the stream that Run has: touched by its goroutine alone.
	held    *policy.Cut
	started string // names this start of the door
	attempt int    // counts up when a refused revision is to be sent again
	stage   *stage
	open    discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	answers *discoveryv3.DeltaDiscoveryResponse // what is answered next
	offered *policy.Cut                         // to the agent; nil: what was offered is none
	failed  error                               // of the agent's answer on its way
	again   bool                                // the stream ends, and the next begins with what is held

	mu     sync.Mutex
	status Status
}

var _ xds.Source = (*Hub)(nil)

// Status is how it stands with the hub.
type Status struct {
	Address string
	// Connected: the hub is on the line, and has confirmed or sent what is in force.
	Connected bool
	Since     time.Time // of that, or of its end; zero: it was never so since the start
	// Heard is when the hub was there last, also before a restart. Zero: not known.
	Heard time.Time
	Err   string // why not connected; "" if it is
}

// New makes a source. It does not connect: a hub that is away is no error. Close ends it.
func New(cfg Config) (*Hub, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	credentials := insecure.NewCredentials()
	if cfg.Certificates != nil {
		credentials = cfg.Certificates.Dial(cfg.Name)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(delta.MostBytes), grpc.MaxCallSendMsgSize(delta.MostAsked)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: cfg.Retry}}),
		grpc.WithUserAgent("spokegate/" + cfg.Version), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
	}
	if cfg.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer{cfg.Token, cfg.Certificates != nil}))
	}
	conn, err := grpc.NewClient(cfg.Address, options...)
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", cfg.Address, err)
	}
	h := &Hub{cfg: cfg, conn: conn, started: rand.Text(), status: Status{Address: cfg.Address, Err: "not called yet"}}
	if cfg.Dir != "" {
		h.heard.path = filepath.Join(cfg.Dir, "heard")
		h.status.Heard = h.heard.read(cfg.Now())
	}
	return h, nil
}

// window is how much the hub may send before it is read: a page or two.
const window = 4 << 20

// bearer shows the hub's token.
type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

// Close ends the connection.
func (h *Hub) Close() error { return h.conn.Close() }

// Status is how it stands now. It may be asked at any time, from anywhere.
func (h *Hub) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.status
	if st.Connected {
		st.Heard = h.cfg.Now()
	}
	return st
}

// Run follows the hub until ctx is done. See [xds.Source].
func (h *Hub) Run(ctx context.Context, held *policy.Cut, offer func(xds.Candidate)) error {
	h.held = held
	pause := leastPause
	for ctx.Err() == nil {
		heard, err := h.follow(ctx, offer)
		h.lost(ctx, err)
		if heard {
			pause = leastPause
		}
		wait := pause/2 + mathrand.N(pause) // so that not all spokes call at once
		if errors.Is(err, errAgain) {
			wait = h.cfg.Again/2 + mathrand.N(h.cfg.Again)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		pause = min(2*pause, h.cfg.Retry)
	}
	return nil
}

const leastPause = 100 * time.Millisecond

// errAgain ends a stream so that what was refused on it is sent once more.
var errAgain = errors.New("the revision is fetched once more")

// follow has one stream, until it ends. heard: the hub has sent something.
func (h *Hub) follow(ctx context.Context, offer func(xds.Candidate)) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.open, err = discoveryv3.NewAggregatedDiscoveryServiceClient(h.conn).DeltaAggregatedResources(ctx); err != nil {
		return false, err
	}
	h.stage, h.again, h.failed = newStage(h.held), false, nil
	if err := h.subscribe(); err != nil {
		return false, h.reason(err)
	}
	for {
		r, err := h.open.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		if err := h.take(r, offer); err != nil {
			return heard, h.reason(err)
		}
		if h.again {
			return heard, errAgain
		}
	}
}

// reason is why a stream failed on which something could not be sent.
func (h *Hub) reason(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := h.open.Recv(); err != nil {
			return err
		}
	}
}

// subscribe asks for everything, and says what is there. The Revision comes last: it closes the list.
func (h *Hub) subscribe() error {
	says := map[string]map[string]string{}
	if h.held != nil {
		for r := range h.held.All() {
			if says[r.Kind] == nil {
				says[r.Kind] = map[string]string{}
			}
			says[r.Kind][r.Name] = r.Version
		}
		says[delta.KindRevision] = map[string]string{delta.RevisionName: delta.Version(h.held)}
	}
	instance, err := structpb.NewStruct(map[string]any{delta.MetadataInstance: fmt.Sprintf("%s/%d", h.started, h.attempt)})
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: delta.Node(h.cfg.Spoke, h.cfg.Door), Cluster: h.cfg.Spoke, Metadata: instance,
		UserAgentName: "spokegate", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: h.cfg.Version}}
	for _, kind := range append(append([]string(nil), policy.Kinds...), delta.KindRevision) {
		err := h.open.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: delta.TypeURL(kind),
			ResourceNamesSubscribe: []string{delta.All}, InitialResourceVersions: says[kind]})
		if err != nil {
			return err
		}
		node = nil // once is enough
	}
	return nil
}

// take is one response. What is not whole, or not good, the agent hears of, and refuses.
func (h *Hub) take(r *discoveryv3.DeltaDiscoveryResponse, offer func(xds.Candidate)) error {
	h.answers = r
	if delta.Kind(r.GetTypeUrl()) != delta.KindRevision {
		err := h.stage.add(r)
		if err == nil {
			return h.answer("")
		}
		h.stage = newStage(h.held)
		offer(xds.Candidate{From: h.from(), Err: err})
		return h.failed
	}
	cut, digest, err := h.stage.close(r)
	h.stage = newStage(h.held)
	if err == nil && !bytes.Equal(digest, cut.Digest()) {
		h.again = true // the two sides see differently what is here: that is told anew
	}
	h.offered = cut
	offer(xds.Candidate{Cut: cut, Digest: digest, From: h.from(), Err: err})
	h.offered = nil
	return h.failed
}

func (h *Hub) from() string { return "hub " + h.cfg.Address }

// answer is the ACK of a response, or with a reason the NACK.
func (h *Hub) answer(nack string) error {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: h.answers.GetTypeUrl(), ResponseNonce: h.answers.GetNonce()}
	if nack != "" {
		r.ErrorDetail = status.New(codes.InvalidArgument, strings.ToValidUTF8(nack[:min(len(nack), mostReason)], "")).Proto()
	}
	return h.open.Send(r)
}

// mostReason is how much of a reason goes to the hub, in bytes.
const mostReason = 2048

// Ack implements xds.Source.
func (h *Hub) Ack(uint64) {
	if h.offered != nil {
		h.held = h.offered
	}
	h.stage = newStage(h.held)
	h.failed = h.answer("")
	h.reached()
}

// Nack implements xds.Source.
func (h *Hub) Nack(reason string, again bool) {
	h.again = h.again || again
	if h.again {
		h.attempt++
	}
	h.failed = h.answer(reason)
	h.reached()
}

// reached notes that the hub is there, and what is in force is what it wants, or was refused.
func (h *Hub) reached() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed != nil {
		return
	}
	if now := h.cfg.Now(); !h.status.Connected {
		h.status.Connected, h.status.Since, h.status.Err = true, now, ""
		h.cfg.Log.Info("the hub is on the line", "hub", h.cfg.Address)
	}
}

// lost notes the end of a stream. What goes on saying the same is logged once.
func (h *Hub) lost(ctx context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, why := h.cfg.Now(), status.Convert(err).Message()
	if h.status.Connected {
		h.status.Connected, h.status.Since, h.status.Heard = false, now, now
		h.heard.write(now, true)
	}
	if ctx.Err() != nil {
		return
	}
	if why != h.status.Err {
		h.cfg.Log.Warn("the hub is away, the policy in force goes on", "hub", h.cfg.Address, "err", why)
	}
	h.status.Err = why
}

// Keep writes down every few seconds that the hub is there, until ctx is done, so that a restart knows how old its policy is.
func (h *Hub) Keep(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if st := h.Status(); st.Connected {
				h.heard.write(st.Heard, false)
			}
		}
	}
}

const keepEvery = 5 * time.Second
