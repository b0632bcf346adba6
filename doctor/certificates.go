package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity/mtls"
)

var certificateKinds = []Kind{
	{"cert-unreadable", "certificates", Fault, "the next start fails for it; a process that runs goes on with what it read before", "put PEM files in place that fit each other, readable by its user"},
	{"cert-unseen", "certificates", CannotTell, "its files are for its own user", "run doctor as that user, or as root"},
	{"cert-expired", "certificates", Fault, "nobody who looks takes it", "renew it: rename new files into place, no restart is needed"},
	{"cert-early", "certificates", Fault, "it is not good yet: its dates are wrong, or this clock is", "issue it anew, or set the clock"},
	{"cert-ends-soon", "certificates", Warning, "less than a tenth of its life, or less than a day, is left; what renews it does not", "renew it: rename new files into place, no restart is needed"},
	{"cert-usage", "certificates", Fault, "its extended key usage keeps the other side from taking it", "certificates between doors, workers and hub are for servers and clients; those for clients of the door are for servers"},
	{"cert-name", "certificates", Fault, "the other side refuses it, for it names somebody else", "issue it with the name that stands beside it (docs/operating.md, doors and workers on other machines)"},
	{"cert-chain", "certificates", Fault, "the other side does not find its authority", "send the certificates between it and the authority along, in the same file; and give the other side the right authorities"},
	{"cert-private", "certificates", Note, "clients that know the system's authorities alone do not take it", "nothing, where clients know your own authority"},
	{"cert-served", "certificates", Warning, "the file was renewed, and what is served was not", "rename files into place instead of writing into them, in the folder that Envoy watches"},
	{"tls-mixed", "certificates", Fault, "one side speaks TLS and the other does not, so that workers cannot join, or not be reached", "a spoke has certificates on doors and on all workers, or on none"},
}

// certificate is one of a process: its files, and who looks at it.
type certificate struct {
	who          *process
	what         string // the flag
	cert, key    string
	uses         []x509.ExtKeyUsage
	named        func(*x509.Certificate) error // nil: any name
	otherSide    []string                      // files of authorities that must vouch for it
	publicChains bool                          // it is for anybody
}

// both are for servers and for clients.
var both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// checkCertificates looks at files on this machine, and at what is served.
func checkCertificates(ctx context.Context, e *exam) {
	for _, c := range e.certificates() {
		e.judgeFiles(c)
	}
	for _, d := range e.of("door") {
		if d.flag("tls-cert") != "" && (d.here || !onLoopback(d.flag("listen"))) {
			e.judgeServed(ctx, d)
		}
		if !strings.HasPrefix(d.flag("fleet-listen"), "unix:") {
			e.mixed(d)
		}
	}
}

// certificates are all that processes on this machine have.
func (e *exam) certificates() (list []certificate) {
	doors, workers, hubs := e.of("door", "epp"), e.of("worker"), e.of("hub")
	for _, d := range doors {
		list = append(list,
			certificate{d, "-tls-cert", d.path("tls-cert"), d.path("tls-key"), both[:1], nil, nil, true},
			certificate{d, "-fleet-cert", d.path("fleet-cert"), d.path("fleet-key"), both, nil, authorities(workers, "tls-ca"), false},
			certificate{d, "-hub-cert", d.path("hub-cert"), d.path("hub-key"), both[1:], func(c *x509.Certificate) error {
				return mtls.IsDoor(c, d.about.Spoke, d.about.Name)
			}, authorities(hubs, "ca"), false})
	}
	for _, w := range workers {
		list = append(list, certificate{w, "-tls-cert", w.path("tls-cert"), w.path("tls-key"), both, func(c *x509.Certificate) error {
			return mtls.IsWorker(c, w.about.Spoke, w.about.Name)
		}, authorities(doors, "fleet-ca"), false})
	}
	for _, h := range hubs {
		list = append(list, certificate{h, "-cert", h.path("cert"), h.path("key"), both, nil, authorities(doors, "hub-ca"), false},
			certificate{h, "-tls-cert", h.path("tls-cert"), h.path("tls-key"), both[:1], nil, nil, true})
	}
	return slices.DeleteFunc(list, func(c certificate) bool { return c.cert == "" || !c.who.here })
}

// authorities are the files by which others judge.
func authorities(of []*process, flag string) (files []string) {
	for _, p := range of {
		if p.here {
			files = append(files, p.path(flag))
		}
	}
	return unique(files)
}

func (e *exam) judgeFiles(c certificate) {
	where := c.who.where() + " " + c.what
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if errors.Is(err, os.ErrPermission) {
		e.found("cert-unseen", where, "%v", err)
		return
	}
	e.say("cert-unreadable", where, err != nil, "%s %s", c.cert, orNil(err, "and its key fit"))
	if err != nil {
		return
	}
	leaf, chain, _ := parseChain(pair.Certificate)
	e.judgeDates(where, leaf)
	for _, use := range c.uses {
		e.say("cert-usage", where, !goodFor(leaf, use), "%s for %s", leaf.Subject, map[x509.ExtKeyUsage]string{both[0]: "servers", both[1]: "clients"}[use])
	}
	if c.named != nil {
		err := c.named(leaf)
		e.say("cert-name", where, err != nil, "%s", orNil(err, "it has the name"))
	}
	for _, file := range c.otherSide {
		roots, err := readRoots(file)
		if err == nil {
			_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		}
		if notDates(err) {
			e.say("cert-chain", where, err != nil, "by %s: %s", file, orNil(err, "it is vouched for"))
		}
	}
	if c.publicChains {
		_, err := leaf.Verify(x509.VerifyOptions{Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		e.say("cert-private", where, err != nil && notDates(err), "%s", orNil(err, "the system's authorities vouch for it"))
	}
}

// notDates leaves dates to the findings of their own.
func notDates(err error) bool {
	var bad x509.CertificateInvalidError
	return !errors.As(err, &bad) || bad.Reason != x509.Expired
}

func (e *exam) judgeDates(where string, c *x509.Certificate) {
	now, life := time.Now(), c.NotAfter.Sub(c.NotBefore)
	left := c.NotAfter.Sub(now)
	until := "good from " + c.NotBefore.Format(time.RFC3339) + " to " + c.NotAfter.Format(time.RFC3339)
	e.say("cert-early", where, now.Before(c.NotBefore), "%s", until)
	e.say("cert-expired", where, left <= 0, "%s", until)
	if left > 0 {
		e.say("cert-ends-soon", where, left < min(life/10, 30*24*time.Hour) || left < 24*time.Hour && life > 48*time.Hour, "%s", until)
	}
}

func parseChain(der [][]byte) (leaf *x509.Certificate, between *x509.CertPool, err error) {
	between = x509.NewCertPool()
	for i, raw := range der {
		c, err := x509.ParseCertificate(raw)
		switch {
		case err != nil:
			return nil, nil, err
		case i == 0:
			leaf = c
		default:
			between.AddCert(c)
		}
	}
	return leaf, between, nil
}

func goodFor(c *x509.Certificate, use x509.ExtKeyUsage) bool {
	return len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, use) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

func readRoots(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate of an authority", file)
	}
	return roots, nil
}

// judgeServed looks at what a door shows to clients.
func (e *exam) judgeServed(ctx context.Context, d *process) {
	where := d.where() + " listener"
	at := strings.TrimPrefix(d.clientsAddress(), "https://")
	served, err := handshake(ctx, at)
	if err != nil {
		return // the port's finding says so
	}
	e.judgeDates(where, served)
	if !d.here {
		return
	}
	data, err := os.ReadFile(d.path("tls-cert"))
	block, _ := pem.Decode(data)
	if err == nil && block != nil {
		e.say("cert-served", where, !bytes.Equal(block.Bytes, served.Raw), "%s serves number %s", at, served.SerialNumber)
	}
}

// handshake is the certificate that is served at an address.
func handshake(ctx context.Context, at string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	raw, err := dial(ctx, at)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	name := host(at)
	if _, err := netip.ParseAddr(name); err == nil {
		name = "" // no name is asked for by an address
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"h2", "http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}

// mixed wants all workers with certificates where the door has them, and none where it has not.
func (e *exam) mixed(d *process) {
	encrypted := d.flag("fleet-cert") != ""
	for _, w := range e.of("worker") {
		if w.about.Spoke != d.about.Spoke || !joins(w, d) {
			continue
		}
		has := w.flag("tls-cert") != ""
		e.say("tls-mixed", w.where(), has != encrypted, "the worker has %s, the door %s", certificatesOrNone(has), certificatesOrNone(encrypted))
	}
}

// joins says that a worker was told of a door, by its port.
func joins(w, d *process) bool {
	_, port, err := net.SplitHostPort(d.flag("fleet-listen"))
	return err == nil && slices.ContainsFunc(strings.Split(w.flag("doors"), ","), func(at string) bool { return strings.HasSuffix(at, ":"+port) })
}

func certificatesOrNone(yes bool) string {
	if yes {
		return "certificates"
	}
	return "none"
}
