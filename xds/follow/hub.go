// Package follow is the spoke's half of policy distribution from a hub: [Hub] is a source for the agent (package xds) that
// follows the hub's delta xDS stream, and tells the hub of the door (api/hub/v1).
//
// It promises that a cut is offered only when all of it has arrived and its digest fits, that the hub hears the agent's answer,
// that a hub which is away is tried again every few seconds at least, and that on return only what has changed meanwhile is
// sent. It says since when nothing was heard, also over a restart.
package follow

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

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
	// Reports are what the hub is told beside its answers.
	Reports Reports
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
	heard mark

	// Of the stream that Run has: touched by its goroutine alone.
	held    *policy.Cut
	started string // names this start of the door
	attempt int    // counts up when a refused revision is to be sent again
	stage   *stage
	open    discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	answers *incoming   // what is answered next
	offered *policy.Cut // to the agent; nil: what was offered is none
	failed  error       // of the agent's answer on its way
	again   bool        // the stream ends, and the next begins with what is held

	mu     sync.Mutex // guards what follows
	conn   *grpc.ClientConn
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
	h := &Hub{cfg: cfg, started: rand.Text(), status: Status{Address: cfg.Address, Err: notCalled}}
	if cfg.Dir != "" {
		h.heard.path = filepath.Join(cfg.Dir, "heard")
		h.status.Heard = h.heard.read(cfg.Now())
	}
	return h, h.dial()
}

// dial makes a connection in place of the one before, which lives by the certificate with which it was made.
func (h *Hub) dial() error {
	cfg := &h.cfg
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
		return fmt.Errorf("hub %s: %w", cfg.Address, err)
	}
	h.mu.Lock()
	before := h.conn
	h.conn = conn
	h.mu.Unlock()
	if before != nil {
		_ = before.Close()
	}
	return nil
}

// connection is the one of now.
func (h *Hub) connection() *grpc.ClientConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn
}

const notCalled = "not called yet"

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
func (h *Hub) Close() error { return h.connection().Close() }

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
		goes := "the policy in force goes on"
		if h.held == nil {
			goes = "there is no policy yet"
		}
		h.cfg.Log.Warn("the hub is away, "+goes, "hub", h.cfg.Address, "err", why)
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
