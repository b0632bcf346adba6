package mtls

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// WorkerPrefix is how the URI of a worker of a spoke begins in a certificate: its name follows.
func WorkerPrefix(spoke string) string { return "spiffe://" + spoke + "/worker/" }

// isWorkers says that a URI is a worker's, of whichever spoke.
func isWorkers(uri string) bool {
	return strings.HasPrefix(uri, "spiffe://") && strings.Contains(uri, "/worker/")
}

// IsWorker says what is against a certificate being that of the worker name of a spoke: it must have the name as a DNS name,
// or WorkerPrefix and the name as a URI.
func IsWorker(c *x509.Certificate, spoke, name string) error {
	if slices.Contains(c.DNSNames, name) || hasURI(c, func(u string) bool { return u == WorkerPrefix(spoke)+name }) {
		return nil
	}
	return fmt.Errorf("the certificate names %s: want the DNS name %s or the URI %s", subjects(c), name, WorkerPrefix(spoke)+name)
}

// MayCall says what is against a shim's being called with a certificate. Those of doors may, which have one of the names, or
// spiffe://SPOKE/door/… as a URI; and those of the spoke's other workers, by their URI.
func MayCall(c *x509.Certificate, spoke string, doors []string) error {
	if slices.ContainsFunc(doors, func(d string) bool { return c.VerifyHostname(d) == nil }) {
		return nil
	}
	own := func(u string) bool {
		return strings.HasPrefix(u, WorkerPrefix(spoke)) || strings.HasPrefix(u, "spiffe://"+spoke+"/door/")
	}
	if hasURI(c, own) {
		return nil
	}
	return fmt.Errorf("the certificate names %s: want a door's, %s or the URI spiffe://%s/door/…", subjects(c), strings.Join(doors, " or "), spoke)
}

// IsPeer says what is against a certificate being that of any worker of a spoke: it must have the URI.
func IsPeer(c *x509.Certificate, spoke string) error {
	if hasURI(c, func(u string) bool { return strings.HasPrefix(u, WorkerPrefix(spoke)) }) {
		return nil
	}
	return fmt.Errorf("the certificate names %s: want a URI that begins with %s", subjects(c), WorkerPrefix(spoke))
}

func hasURI(c *x509.Certificate, want func(string) bool) bool {
	return slices.ContainsFunc(c.URIs, func(u *url.URL) bool { return want(u.String()) })
}

// subjects are the names in a certificate, for messages.
func subjects(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	if len(names) == 0 {
		return "nobody"
	}
	text := fmt.Sprintf("%q", names)
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	return text
}
