package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/identity/mtls"
)

// fleetFlags are how a door and its workers know each other.
type fleetFlags struct {
	listen    string
	tokenFile string
	seedFile  string
	tls       mtls.Files
	plain     bool
	guess     bool
}

func (l *fleetFlags) register(f *flag.FlagSet) {
	f.StringVar(&l.listen, "fleet-listen", "", "`address` where workers join: host:port, or unix:PATH (default: unix:DIR/run/fleet.sock)")
	f.StringVar(&l.tokenFile, "join-token-file", "", "`file` with the token that workers join with; not needed where they have certificates")
	f.StringVar(&l.tls.Cert, "fleet-cert", "", "`file` with the PEM certificate chain that workers know this door and its Envoy by; TLS on -fleet-listen and to workers. A renewed one is taken up when it is renamed into place")
	f.StringVar(&l.tls.Key, "fleet-key", "", "`file` with its key")
	f.StringVar(&l.tls.CA, "fleet-ca", "", "`file` with the PEM certificates of the authorities that vouch for workers")
	f.BoolVar(&l.plain, "fleet-plain", false, "let -fleet-listen be open to the network without TLS: only where the network itself encrypts")
	f.BoolVar(&l.guess, "guess-blocks", false, "do not follow which KV blocks workers announce, nor render prompts by their chat templates: guess what workers hold by what they were sent")
	f.StringVar(&l.seedFile, "seed-file", "", "`file` with the secret that the seed of block hashes is made of, the same at all doors of the spoke; at least 32 characters (default: the join token)")
}

// complete derives what is left open in a door's folder, and refuses what does not fit.
func (l *fleetFlags) complete(run string) error {
	if l.listen == "" {
		l.listen = "unix:" + filepath.Join(run, "fleet.sock")
	}
	for _, path := range []*string{&l.tls.Cert, &l.tls.Key, &l.tls.CA} {
		if *path != "" {
			var err error
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if !l.tls.Given() && !l.plain && !onThisMachine(l.listen) {
		return fmt.Errorf("-fleet-listen %s is open to the network, and the join token would cross it unencrypted: give -fleet-cert, "+
			"-fleet-key and -fleet-ca, or -fleet-plain where the network itself encrypts", l.listen)
	}
	return nil
}

// onSocket says that workers join at a Unix socket.
func (l *fleetFlags) onSocket() bool { return strings.HasPrefix(l.listen, "unix:") }

// certified says that workers join by certificates. On a Unix socket they have none: they are this machine's.
func (l *fleetFlags) certified() bool { return l.tls.Given() && !l.onSocket() }

// private says that nobody can listen in when the door tells workers secrets.
func (l *fleetFlags) private() bool { return l.onSocket() || l.certified() }

// secrets reads the join token, empty if there is none, and what the seed is made of.
func (l *fleetFlags) secrets() (token, seed string, err error) {
	if l.tokenFile != "" || !l.certified() {
		if token, err = readToken(l.tokenFile); err != nil {
			return "", "", err
		}
	}
	switch {
	case l.seedFile != "":
		seed, err = readSecret(l.seedFile, "the secret for the seed")
	case token == "":
		err = errors.New("-seed-file is missing: without a join token the doors of a spoke need another secret in common, for the hashes of blocks")
	default:
		seed = token
	}
	return token, seed, err
}

// onThisMachine says that an address is a Unix socket, or on loopback.
func onThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip, notIP := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || notIP == nil && ip.IsLoopback())
}

// openCertificates reads them, if any are given, and tells their end as a metric; of is who knows this process by them.
func openCertificates(f mtls.Files, of string, reg prometheus.Registerer, log *slog.Logger) (*mtls.Keeper, error) {
	if !f.Given() {
		return nil, nil
	}
	k, err := mtls.Open(f, log)
	if err != nil {
		return nil, err
	}
	tellExpiry(of, reg, k.Expires)
	return k, nil
}

// tellExpiry makes a metric of the end of a certificate.
func tellExpiry(of string, reg prometheus.Registerer, expires func() time.Time) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_certificate_expires_timestamp_seconds", ConstLabels: prometheus.Labels{"of": of},
		Help: "When the certificate that this process shows expires.",
	}, func() float64 { return float64(expires().Unix()) }))
}

// joining is how a door, or a picker by itself, and its workers know each other.
type joining struct {
	flags        fleetFlags
	spoke, name  string
	token        string // empty: certificates do
	fleet        *fleet.Fleet
	seed         *seed
	certificates *mtls.Keeper // nil: none
	log          *slog.Logger
}

func (d *door) joining(token string) joining {
	return joining{d.fleetFlags, d.spoke, d.name, token, d.fleet, d.seed, d.certificates, d.log}
}

// fleetWindow is how much workers may send ahead, in bytes. That it is told keeps gRPC from measuring what would be right: with a
// ping, and its answer, for nearly each of their messages, which are small and many.
const fleetWindow = 1 << 20

// options are those of the server that workers join at.
func (j joining) options() []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.InitialWindowSize(fleetWindow), grpc.InitialConnWindowSize(fleetWindow)}
	if !j.flags.certified() {
		if !onThisMachine(j.flags.listen) {
			j.log.Warn("workers join over the network without TLS: whoever listens in has the join token", "address", j.flags.listen)
		}
		return options
	}
	anyone := func(*x509.Certificate) error { return nil } // whose it must be, Hello tells
	return append(options, grpc.Creds(j.certificates.Listen(anyone)))
}

// server is where workers join. own are the addresses where no worker can be.
func (j joining) server(keys func() ([]identity.DoorKey, <-chan struct{}), own ...string) *join.Server {
	return &join.Server{Fleet: j.fleet, Token: j.token, Certified: j.flags.certified(), Spoke: j.spoke, Door: j.name,
		Keys: keys, Seed: j.seed.current, Own: append(own, j.flags.listen), Log: j.log}
}

// seedOf is the seed that all doors of a spoke come to that have the same secret. It is never 0, which means none.
func seedOf(secret, spoke string) uint64 {
	b, _ := hkdf.Key(sha256.New, []byte(secret), []byte(spoke), "spokegate block hash seed", 8) // fails for lengths beyond reason
	return max(binary.BigEndian.Uint64(b), 1)
}

// seed is the spoke's seed of the hashes of blocks. It follows the file, if there is one.
type seed struct {
	file, spoke string
	log         *slog.Logger

	mu      sync.Mutex
	value   uint64
	changed chan struct{}
}

func newSeed(secret, file, spoke string, log *slog.Logger) *seed {
	return &seed{file: file, spoke: spoke, log: log, value: seedOf(secret, spoke), changed: make(chan struct{})}
}

// current is the seed, and a channel that is closed when it is another.
func (s *seed) current() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.changed
}

// seedPoll is how often the file is looked at.
const seedPoll = time.Second

func (s *seed) run(ctx context.Context) error {
	said := ""
	for s.file != "" && pause(ctx, seedPoll) {
		secret, err := readSecret(s.file, "the secret for the seed")
		if err != nil {
			if err.Error() != said {
				said = err.Error()
				s.log.Warn("the seed of block hashes stays as it was", "error", err)
			}
			continue
		}
		said = ""
		if s.take(seedOf(secret, s.spoke)) {
			s.log.Info("block hashes have another seed")
		}
	}
	return nil
}

func (s *seed) take(value uint64) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == s.value {
		return false
	}
	s.value = value
	close(s.changed)
	s.changed = make(chan struct{})
	return true
}
