// Package mtls is how doors and workers of a spoke know each other by certificates: PEM files, read anew when they change, and
// the rule of whose a certificate is.
//
// It promises TLS 1.3, that neither side is taken without a certificate of the spoke's authorities, and that files which
// cannot be used leave in force what was read before. It makes no certificates and keeps no list of revoked ones: short lives
// do that.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Files are PEM files of one door or worker.
type Files struct {
	// Cert is its chain of certificates, the own one first, good for servers and for clients; Key is the own one's.
	Cert, Key string
	// CA has the authorities that vouch for the other side.
	CA string
}

// Given says whether any is named.
func (f Files) Given() bool { return f != Files{} }

// Keeper holds what the files said last. It is safe for concurrent use.
type Keeper struct {
	files Files
	log   *slog.Logger

	mu    sync.Mutex // guards what is below
	marks [3]mark
	held  *material
	said  string // of files that cannot be used
}

type material struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// mark tells whether a file has changed.
type mark struct {
	at   time.Time
	size int64
}

// Open reads the files, and says what is wrong with them.
func Open(f Files, log *slog.Logger) (*Keeper, error) {
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("TLS between doors and workers needs a certificate, its key, and the authorities of the other side")
	}
	k := &Keeper{files: f, log: log, marks: f.marks()}
	var err error
	if k.held, err = f.read(time.Now()); err != nil {
		return nil, err
	}
	return k, nil
}

// now is what holds for a handshake that begins.
func (k *Keeper) now() *material {
	k.mu.Lock()
	defer k.mu.Unlock()
	marks := k.files.marks()
	if marks == k.marks {
		return k.held
	}
	m, err := k.files.read(time.Now())
	if err != nil { // perhaps just one of them is in place yet: they are looked at again next time
		if k.said != err.Error() {
			k.said = err.Error()
			k.log.Warn("certificates have changed and cannot be used; those before stay in force", "error", k.said)
		}
		return k.held
	}
	k.log.Info("certificates are taken up", "cert", k.files.Cert, "expires", m.cert.Leaf.NotAfter)
	k.marks, k.held, k.said = marks, m, ""
	return m
}

// Expires is when the own certificate does.
func (k *Keeper) Expires() time.Time { return k.now().cert.Leaf.NotAfter }

// Leaf is the own certificate.
func (k *Keeper) Leaf() *x509.Certificate { return k.now().cert.Leaf }

// Server is for a listener that speaks the protocols. Who calls needs a certificate that accept has nothing against; its
// refusals are logged.
func (k *Keeper) Server(accept func(*x509.Certificate) error, protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := k.now()
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, NextProtos: protocols,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: m.roots,
			SessionTicketsDisabled: true, // a resumed session would outlive a change of the authorities
			VerifyConnection:       k.verify(accept),
		}, nil
	}}
}

func (k *Keeper) verify(accept func(*x509.Certificate) error) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		err := accept(s.PeerCertificates[0])
		if err != nil {
			k.log.Warn("connection refused", "error", err)
		}
		return err
	}
}

// Client is for one connection, to who has the name. It is to be asked for each, lest old files stay in force.
func (k *Keeper) Client(name string) *tls.Config {
	m := k.now()
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, RootCAs: m.roots, ServerName: name}
}

// Peer is for connections to whoever accept has nothing against, whatever the address. It may be kept.
func (k *Keeper) Peer(accept func(*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			m := k.now()
			return &m.cert, nil
		},
		InsecureSkipVerify: true, // the name alone: VerifyConnection does the rest
		VerifyConnection: func(s tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: k.now().roots, Intermediates: between}); err != nil {
				return err
			}
			return accept(s.PeerCertificates[0])
		},
	}
}

func (f Files) marks() (m [3]mark) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		if st, err := os.Stat(path); err == nil {
			m[i] = mark{st.ModTime(), st.Size()}
		}
	}
	return m
}

func (f Files) read(now time.Time) (*material, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", f.Cert, f.Key, err)
	}
	switch leaf := cert.Leaf; {
	case now.After(leaf.NotAfter):
		return nil, fmt.Errorf("certificate %s expired at %s", f.Cert, leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("certificate %s is not valid before %s", f.Cert, leaf.NotBefore.Format(time.RFC3339))
	case !goodFor(leaf, x509.ExtKeyUsageServerAuth) || !goodFor(leaf, x509.ExtKeyUsageClientAuth):
		return nil, fmt.Errorf("certificate %s: its extended key usage must allow for servers and for clients: a door and a worker are both", f.Cert)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate of an authority in PEM", f.CA)
	}
	return &material{cert, roots}, nil
}

// goodFor: one without any usage is good for all.
func goodFor(c *x509.Certificate, use x509.ExtKeyUsage) bool {
	return len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, use) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}
