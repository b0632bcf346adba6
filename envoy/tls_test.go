package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair makes a self-signed certificate of a serial number and renames it, with its key, into dir.
func writePair(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "door"}, DNSNames: []string{"door.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: pkcs8}, cert: {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{key, cert} {
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// offered is the serial number of the certificate and the protocol that the door offers; 0 if it offers none.
func offered(addr string, most uint16, protocols ...string) (serial int64, protocol string) {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, MaxVersion: most})
	if err != nil {
		return 0, ""
	}
	defer c.Close()
	s := c.ConnectionState()
	return s.PeerCertificates[0].SerialNumber.Int64(), s.NegotiatedProtocol
}

// TestTLS: both protocols by ALPN, nothing older than TLS 1.2, and a renewed certificate without a restart.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	r := startRig(t, false, func(d *Door) { d.TLSCert, d.TLSKey = writePair(t, dir, 1) })
	r.eventually("a certificate", func() bool { n, _ := offered(r.addr, tls.VersionTLS13, "h2", "http/1.1"); return n == 1 })
	for _, want := range []string{"h2", "http/1.1"} {
		if _, got := offered(r.addr, tls.VersionTLS13, want); got != want {
			t.Errorf("asked for %s, got %q", want, got)
		}
	}
	if n, _ := offered(r.addr, tls.VersionTLS11); n != 0 {
		t.Error("TLS 1.1 is spoken")
	}
	writePair(t, dir, 2)
	r.eventually("the renewed certificate", func() bool { n, _ := offered(r.addr, tls.VersionTLS13); return n == 2 })
}

func TestBadCertificateIsOneSentence(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), 1)
	_, other := writePair(t, t.TempDir(), 2)
	for name, c := range map[string]struct{ cert, key, want string }{
		"good":      {cert, key, ""},
		"half":      {cert, "", "both"},
		"relative":  {"cert.pem", "key.pem", "absolute"},
		"missing":   {"/nowhere/cert.pem", key, "no such file"},
		"unmatched": {cert, other, "does not match"},
		"no PEM":    {key, key, "certificate"},
	} {
		err := Door{Listen: "127.0.0.1:1", DoorSocket: "/d", TLSCert: c.cert, TLSKey: c.key}.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
