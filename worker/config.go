package worker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Journal keeps "served" records. Append takes ownership and must not block. A *usage.Spool is one.
type Journal interface{ Append(*usagev1.Record) }

// Config is one worker.
type Config struct {
	// Name is unique in the spoke: 1 to 64 characters [a-z0-9.-].
	Name string
	// Spoke is written into the records.
	Spoke string
	// Endpoint of the policy that this worker serves; contexts for another are refused.
	Endpoint string
	// Listen is where the door's Envoy reaches the shim, host:port; port 0 takes a free one.
	Listen string
	// Advertise is the ip:port told to the doors; empty: the address listened on, which then must not be unspecified.
	Advertise string
	// TLS is what the listener speaks, with HTTP/1.1 and HTTP/2; nil: neither is encrypted. Certificates that change go into
	// its GetConfigForClient.
	TLS *tls.Config
	// PeerTLS is how other workers are reached, for the prefill leg; nil: they do not encrypt. A peer is known by its ip:port
	// alone, so whom to trust is for its VerifyConnection.
	PeerTLS *tls.Config
	// Doors are the doors to join: host:port, unix:PATH, or dns:HOST:PORT, which is looked up again and again, and stands for as
	// many doors as the host has addresses. At least one.
	Doors []string
	// DoorCredentials are for connections to doors, Unix sockets apart, which are never encrypted; nil: nor are the others.
	DoorCredentials credentials.TransportCredentials
	// JoinToken is the spoke's secret for joining. It may be empty where all doors are reached with DoorCredentials, and ask
	// for none.
	JoinToken string
	// Ranks are the data-parallel ranks of the engine, among which the door chooses with each request; 0 or 1: it has but one.
	Ranks int
	// Role is "prefill" (it computes prompts for others and answers nobody), "decode" (it answers, and others may compute its
	// prompts), or empty: it does both.
	Role string
	// BlocksAddress is where pickers follow the engine's blocks, ip:port; empty: they are not announced.
	BlocksAddress string
	// Version of the shim, told to the doors.
	Version string
	// Engine to run or to watch. The worker owns it.
	Engine Engine
	// Watch is how closely the engine is looked at.
	Watch Watch
	// Journal gets the served, probe and engine records. The worker does not close it.
	Journal Journal
	// MaxBody bounds a request body, in bytes, as it comes and as it is decoded; not below what the doors admit. 0: 64 MiB.
	MaxBody int64
	// BodyTimeout is how long a request body may take to arrive. 0: 60 s.
	BodyTimeout time.Duration
	// PrefillTimeout is how long a prefiller may take, before this worker's own engine reads the prompt. 0: 30 s.
	PrefillTimeout time.Duration
	// DrainDelay is how long after the end is asked for requests are still taken: doors are told at once, and may have sent some
	// before they heard. 0: none is.
	DrainDelay time.Duration
	// DrainTimeout is how long requests in flight may go on after that. 0: 30 s.
	DrainTimeout time.Duration
	// Registerer takes the metrics; nil: they are kept, and seen by nobody.
	Registerer prometheus.Registerer
	// Tracer makes a span "worker" of each request whose door traces it; nil: none, and the door's traceparent passes.
	Tracer trace.Tracer
	// Log; nil: slog.Default().
	Log *slog.Logger

	// For tests; zero: as long as a context lives, the machine's, and lookEvery.
	keyLife   time.Duration
	resolver  resolver
	lookEvery time.Duration
}

var nameForm = regexp.MustCompile(`^[a-z0-9.-]{1,64}$`)

func (c Config) withDefaults() (Config, error) {
	switch {
	case !nameForm.MatchString(c.Name):
		return c, fmt.Errorf("worker: name %q: 1 to 64 characters [a-z0-9.-] expected", c.Name)
	case c.Endpoint == "":
		return c, errors.New("worker: an endpoint is needed")
	case len(c.Doors) == 0:
		return c, errors.New("worker: the address of at least one door is needed")
	case c.JoinToken == "" && (c.DoorCredentials == nil || slices.ContainsFunc(c.Doors, onSocket)):
		return c, errors.New("worker: a join token is needed, but for doors that know this worker by its certificate")
	case c.Role != "" && c.Role != rolePrefill && c.Role != roleDecode:
		return c, fmt.Errorf("worker: role %q: %s, %s or none expected", c.Role, rolePrefill, roleDecode)
	case c.Ranks < 0 || c.Ranks > maxRanks:
		return c, fmt.Errorf("worker: %d data-parallel ranks: up to %d expected", c.Ranks, maxRanks)
	case c.Engine == nil || c.Journal == nil:
		return c, errors.New("worker: an engine and a journal are needed")
	}
	for _, target := range c.Doors {
		if _, _, err := DoorHost(target); err != nil {
			return c, fmt.Errorf("worker: %w", err)
		}
	}
	setDefault(&c.MaxBody, 64<<20)
	setDefault(&c.BodyTimeout, time.Minute)
	setDefault(&c.PrefillTimeout, 30*time.Second)
	setDefault(&c.DrainTimeout, 30*time.Second)
	c.Watch.setDefaults()
	setDefault(&c.keyLife, contextLife)
	setDefault(&c.lookEvery, lookEvery)
	if c.resolver == nil {
		c.resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

func setDefault[N ~int64](n *N, to N) {
	if *n <= 0 {
		*n = to
	}
}

// advertised is what the doors are told.
func (c Config) advertised(bound net.Addr) (string, error) {
	address := c.Advertise
	if address == "" {
		address = bound.String()
	}
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("worker: address %q for the doors: ip:port expected", address)
	case at.Addr().IsUnspecified():
		return "", fmt.Errorf("worker: %q listens everywhere: say which address the doors shall use", address)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String(), nil
}
