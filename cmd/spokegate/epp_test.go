package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

func eppFlagsOf(t *testing.T, args ...string) (e eppFlags) {
	t.Helper()
	f := flag.NewFlagSet("epp", flag.ContinueOnError)
	e.register(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEPPFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":               "-workers, -pool or -fleet-listen is required",
		"-pool large":    "",
		"-pool ns/large": "",
		"-pool ns/large -leader-elect -pool-status -kubeconfig k": "",
		"-pool /large":                                       `-pool "/large": want NAME or NAMESPACE/NAME`,
		"-pool a/b/c":                                        `-pool "a/b/c": want NAME or NAMESPACE/NAME`,
		"-pool a -workers w":                                 "in a file or in a pool, not in both",
		"-workers w -leader-elect":                           "go with -pool",
		"-workers w -pool-status":                            "go with -pool",
		"-workers w -kubeconfig k":                           "go with -pool",
		"-workers w -endpoint a/b":                           `-endpoint "a/b"`,
		"-workers w -tls-cert c":                             "-tls-cert and -tls-key go together",
		"-workers w -tls-self-signed":                        "",
		"-workers w -tls-cert c -tls-key k -tls-self-signed": "-tls-self-signed goes without -tls-cert",
		"-workers w -join-token-file t":                      "go with -fleet-listen",
		"-workers w -body-limit 0":                           "-body-limit 0",
		"-workers w -drain -1s":                              "no negative time",
		"-fleet-listen 10.0.0.1:9004":                        "open to the network",
		"-fleet-listen 127.0.0.1:9004":                       "",
		"-workers w -guess-blocks":                           "",
	} {
		e := eppFlagsOf(t, strings.Fields(line)...)
		if err := e.complete(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestEPPEndpoint(t *testing.T) {
	for line, want := range map[string]string{"-workers w": "default", "-pool ns/large": "large", "-pool large -endpoint llama": "llama"} {
		e := eppFlagsOf(t, strings.Fields(line)...)
		if err := e.complete(); err != nil || e.endpoint != want {
			t.Errorf("%s: %s, %v", line, e.endpoint, err)
		}
	}
}

// eppRun is a picker in this process, on sockets.
type eppRun struct {
	*testing.T
	dir   string
	probe healthv1.HealthClient
	pages *http.Client
	stop  func() error
}

func runPicker(t *testing.T, dir string, args ...string) *eppRun {
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	e := eppFlagsOf(t, append([]string{"-endpoint", "pool", "-listen", at("epp"), "-health-listen", at("health"), "-ops", at("ops"), "-drain-delay", "0s"}, args...)...)
	if err := e.complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveEPP(ctx, e, "", "", slog.New(slog.DiscardHandler)) }()
	conn, err := grpc.NewClient(at("health"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r := &eppRun{T: t, dir: dir, probe: healthv1.NewHealthClient(conn), stop: func() error { cancel(); return <-ended },
		pages: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "ops"))
		}}}}
	t.Cleanup(func() { _ = conn.Close() })
	return r
}

// says waits until /readyz has all of these, with this status, and health says the same.
func (r *eppRun) says(ready bool, words ...string) {
	r.Helper()
	want, status := healthv1.HealthCheckResponse_NOT_SERVING, http.StatusServiceUnavailable
	if ready {
		want, status = healthv1.HealthCheckResponse_SERVING, http.StatusOK
	}
	why := ""
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		why = r.lacks(want, status, words)
		if why == "" {
			return
		}
	}
	r.Fatal(why)
}

func (r *eppRun) lacks(want healthv1.HealthCheckResponse_ServingStatus, status int, words []string) string {
	for service, want := range map[string]healthv1.HealthCheckResponse_ServingStatus{"liveness": healthv1.HealthCheckResponse_SERVING, "readiness": want, "": want} {
		got, err := r.probe.Check(r.Context(), &healthv1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
		if err != nil || got.Status != want {
			return fmt.Sprintf("%q: %v, %v", service, got, err)
		}
	}
	resp, err := r.pages.Get("http://ops/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	for _, w := range words {
		if !strings.Contains(string(body), w) {
			err = fmt.Errorf("no %q", w)
		}
	}
	if err != nil || resp.StatusCode != status {
		return fmt.Sprintf("%v, %d: %s", err, resp.StatusCode, body)
	}
	return ""
}

func (r *eppRun) put(name, text string) {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.Fatal(err)
	}
}

const poolPolicy = "models: [{name: m, endpoint: ENDPOINT}]\nendpoints: [{name: ENDPOINT, routing: {temperature: 0.2}}]\n"

// TestPickerBecomesReady: it lives from the start, is ready once policy and workers are known, and what is bad later changes nothing.
func TestPickerBecomesReady(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "epp") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r := runPicker(t, dir, "-policy", filepath.Join(dir, "policy.yaml"), "-workers", filepath.Join(dir, "workers.yaml"))
	r.says(false, "FAIL policy", "no such file", "FAIL workers: none has been ready yet")
	r.put("policy.yaml", strings.ReplaceAll(poolPolicy, "ENDPOINT", "other"))
	r.says(false, "FAIL policy", "note policy: refused: the policy has no endpoint pool")
	r.put("policy.yaml", strings.ReplaceAll(poolPolicy, "ENDPOINT", "pool"))
	r.says(false, "ok   policy", "FAIL workers")
	r.put("workers.yaml", "workers: [{name: away, address: '127.0.0.1:1'}]\n")
	r.says(false, "FAIL workers", "note endpoint pool: 0 workers can be picked", "note worker away: starting: GET /health")
	r.put("workers.yaml", "workers: []\n")
	r.says(true, "ok   workers: known", "note endpoint pool: 0 workers can be picked")
	r.put("policy.yaml", "models: 5\n")
	r.put("workers.yaml", "workers: 5\n")
	r.says(true, "ok   policy", "note policy: refused: ", "workers.yaml: [1:10]")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// certificateOf is what a gateway is shown; nil: nothing.
func certificateOf(t *testing.T, options []grpc.ServerOption) func() *x509.Certificate {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(options...)
	go func() { _ = g.Serve(lis) }()
	t.Cleanup(g.Stop)
	return func() *x509.Certificate {
		var seen *x509.Certificate
		creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, VerifyConnection: func(c tls.ConnectionState) error {
			seen = c.PeerCertificates[0]
			return nil
		}})
		conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true)) // unimplemented, and answered
		return seen
	}
}

func writePair(t *testing.T, dir string, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key": {Type: "PRIVATE KEY", Bytes: key}, "cert": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}} {
		if err := os.WriteFile(filepath.Join(dir, name+".new"), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateForGateways: made by itself, or of files that may change; one that cannot be read changes nothing.
func TestCertificateForGateways(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	own := servedTLS{selfSigned: true}
	options, err := own.options(log)
	if err != nil {
		t.Fatal(err)
	}
	if c := certificateOf(t, options)(); c == nil || c.Subject.CommonName != "spokegate-epp" || c.NotAfter.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("%+v", c)
	}
	dir := t.TempDir()
	files := servedTLS{cert: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key")}
	if _, err := files.options(log); err == nil {
		t.Error("files that are not there were read")
	}
	first, err := selfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, first)
	if options, err = files.options(log); err != nil {
		t.Fatal(err)
	}
	shown := certificateOf(t, options)
	if c := shown(); c == nil || string(c.Raw) != string(first.Certificate[0]) {
		t.Error("another certificate is shown than that of the file")
	}
	if err := os.WriteFile(files.key, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(pairPoll) // it is looked at again by then
	if c := shown(); c == nil || string(c.Raw) != string(first.Certificate[0]) {
		t.Error("a broken file took the certificate away")
	}
	second, err := selfSigned(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, second)
	for end := time.Now().Add(2 * time.Minute); string(shown().Raw) != string(second.Certificate[0]); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the renewed certificate is not taken up")
		}
	}
}
