package main

import (
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/worker"
)

// tlsFlags are what a worker and its doors know each other by.
type tlsFlags struct {
	files    mtls.Files
	doorName string
}

func (t *tlsFlags) register(f *flag.FlagSet) {
	f.StringVar(&t.files.Cert, "tls-cert", "", "`file` with the PEM certificate chain that doors know this worker by: TLS to doors, and from doors' Envoys. A renewed one is taken up")
	f.StringVar(&t.files.Key, "tls-key", "", "`file` with its key")
	f.StringVar(&t.files.CA, "tls-ca", "", "`file` with the PEM certificates of the authorities that vouch for doors; nobody else gets in")
	f.StringVar(&t.doorName, "tls-door-name", "", "the `name` in the certificate of every door, where it is another than the host in -doors")
}

// certificates are what a worker has; nil: none.
type certificates struct {
	*mtls.Keeper
	spoke, doorName string
	mayCall         func(*x509.Certificate) error
}

// open reads them, and looks whether they are this worker's.
func (t *tlsFlags) open(w workerFlags, reg prometheus.Registerer, log *slog.Logger) (*certificates, error) {
	doors := splitNames(w.doors)
	if !t.files.Given() {
		for _, d := range doors {
			if !onThisMachine(d) {
				log.Warn("the join token goes to a door over the network without TLS", "door", d)
			}
		}
		return nil, nil
	}
	k, err := openCertificates(t.files, "doors", reg, log)
	if err != nil {
		return nil, err
	}
	if err := mtls.IsWorker(k.Leaf(), w.spoke, w.name); err != nil {
		return nil, fmt.Errorf("-tls-cert %s: %w", t.files.Cert, err)
	}
	names, err := t.doorNames(doors)
	if err != nil {
		return nil, err
	}
	mayCall := func(c *x509.Certificate) error { return mtls.MayCall(c, w.spoke, names) }
	return &certificates{k, w.spoke, t.doorName, mayCall}, nil
}

// apply makes a worker join by them, and take nobody without a door's, or another worker's.
func (c *certificates) apply(to *worker.Config) {
	if c == nil {
		return
	}
	to.DoorCredentials = c.Dial(c.doorName)
	to.TLS = c.Server(c.mayCall, "h2", "http/1.1")
	to.PeerTLS = c.Peer(func(peer *x509.Certificate) error { return mtls.IsPeer(peer, c.spoke) })
}

// forCallers are for a gRPC server beside; nil: unencrypted.
func (c *certificates) forCallers() credentials.TransportCredentials {
	if c == nil {
		return nil
	}
	return c.Listen(c.mayCall)
}

// doorNames are whose certificates may call.
func (t *tlsFlags) doorNames(doors []string) (names []string, err error) {
	if t.doorName != "" {
		return []string{t.doorName}, nil
	}
	for _, d := range doors {
		host, _, err := worker.DoorHost(d)
		if err != nil {
			return nil, fmt.Errorf("-doors: %w", err)
		}
		if host == "" {
			return nil, errors.New("-tls-door-name is missing: a door on a Unix socket has no host, and its Envoy must show a certificate")
		}
		names = append(names, strings.TrimSuffix(host, "."))
	}
	return names, nil
}
