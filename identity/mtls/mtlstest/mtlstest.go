// Package mtlstest makes authorities and certificates for tests of TLS between doors and workers.
package mtlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity/mtls"
)

// Authority vouches for what it issues.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

var serial atomic.Int64

// New makes an authority, with its certificate in a file.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	a.Cert, a.key = sign(t, template, nil, nil)
	write(t, a.file, "CERTIFICATE", a.Cert.Raw)
	return a
}

// sign makes a key and its certificate; without a signer it is its own.
func sign(t testing.TB, template, signer *x509.Certificate, signerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer, signerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, key.Public(), signerKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Issue writes a certificate with these names (DNS, IP or URI), its key and the authority into a new folder.
func (a *Authority) Issue(t testing.TB, names ...string) mtls.Files {
	t.Helper()
	return a.IssueInto(t, t.TempDir(), nil, names...)
}

// IssueInto renames them into a folder, as a careful tool renews them. change may alter the certificate.
func (a *Authority) IssueInto(t testing.TB, dir string, change func(*x509.Certificate), names ...string) mtls.Files {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && strings.Contains(n, "://") {
			template.URIs = append(template.URIs, u)
		} else if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	if change != nil {
		change(template)
	}
	cert, key := sign(t, template, a.Cert, a.key)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := mtls.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: a.file}
	write(t, f.Key, "PRIVATE KEY", pkcs8)
	write(t, f.Cert, "CERTIFICATE", cert.Raw)
	return f
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
