package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate and its key as a careful tool renews them: beside the old ones, and then renamed.
func certificate(t *testing.T, dir string, serial int64) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "door"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: keyDER}, cert: {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return cert, key, roots
}

// TestTLS serves HTTPS alone, by both protocols, and takes up a renewed certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, roots := certificate(t, dir, 1)
	u := ownUp(t, "tls", upOptions{policy: simPolicy(), workers: 1, more: []string{"-tls-cert", cert, "-tls-key", key}})
	for _, http2 := range []bool{false, true} {
		resp, err := getTLS(t.Context(), u, roots, http2)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || http2 != (resp.ProtoMajor == 2) {
			t.Errorf("HTTP/2 wanted: %t; got %s %s", http2, resp.Proto, resp.Status)
		}
	}
	if env, err := os.ReadFile(filepath.Join(u.dir, "env")); err != nil || !strings.Contains(string(env), "https://"+u.listen) {
		t.Errorf("the env file says %s %v", env, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	if r, err := sendHTTP1(ctx, u.listen, get(u.key("main"), "/v1/models")); err == nil && r.status < 400 {
		t.Errorf("plain HTTP is served beside HTTPS: %v", r)
	}
	_, _, renewed := certificate(t, dir, 2)
	eventually(t, factPatience, func() error {
		resp, err := getTLS(t.Context(), u, renewed, true)
		if err == nil && resp.TLS.PeerCertificates[0].SerialNumber.Int64() != 2 {
			err = fmt.Errorf("the certificate is number %v", resp.TLS.PeerCertificates[0].SerialNumber)
		}
		return err
	})
}

// getTLS asks for the models on a connection of its own. Only the given roots are trusted.
func getTLS(ctx context.Context, u *up, roots *x509.CertPool, http2 bool) (*http.Response, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: protocols, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+u.listen+"/v1/models", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+u.key("main"))
	resp, err := (&http.Client{Transport: tr, Timeout: callPatience}).Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

// TestUpFlags gives `up` each flag that it shares with `door`, and wants it to reach the door.
func TestUpFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, _ := certificate(t, dir, 1)
	given := map[string]string{"-name": "door-7", "-spoke": "north", "-body-limit": "2000000", "-log-level": "WARN", "-trace-percent": "3",
		"-tls-cert": cert, "-tls-key": key}
	o := upOptions{policy: simPolicy(), workers: 1, picker: "ext_proc"}
	for name, value := range given {
		o.more = append(o.more, name, value)
	}
	u := ownUp(t, "flags", o)
	door := u.the(t, "door")
	for name, value := range given {
		if got := door.flag(name[1:]); got != value {
			t.Errorf("%s %s: the door was started with %q", name, value, got)
		}
	}
}

// TestUpFleetFlags gives `up` what it sets by itself: it must use what it is given, or refuse it in a sentence.
func TestUpFleetFlags(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("t", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"-join-token-file": token, "-fleet-listen": freeAddr()} {
		t.Run(name[1:], func(t *testing.T) {
			t.Parallel()
			u := prepared(t, "fleet-flags", func(o *upOptions) { o.more = []string{name, value} })
			if err := u.begin(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = u.kill() }()
			if err := u.awaitReady(); err != nil {
				if !strings.Contains(u.out.String(), name) {
					t.Errorf("%v\n%s", err, u.report())
				}
				return
			}
			if got := u.the(t, "door").flag(name[1:]); got != value {
				t.Errorf("%s %s: the door was started with %q", name, value, got)
			}
		})
	}
}
