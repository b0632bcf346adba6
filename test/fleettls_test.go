package test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

func fleetFlags(f mtls.Files) []string {
	return []string{"-fleet-cert", f.Cert, "-fleet-key", f.Key, "-fleet-ca", f.CA}
}

// certifiedDoor starts a door and its Envoy whose workers join over the network by their certificates, without a token, in the
// spoke north.
func certifiedDoor(t *testing.T, certificate mtls.Files) (u *up, joinAt string) {
	t.Helper()
	lab.needEnvoy(t)
	dir, err := os.MkdirTemp("/tmp", "sg")
	if err != nil {
		t.Fatal(err)
	}
	u = &up{name: "door-1", dir: dir, listen: freeAddr(), admin: freeAddr(), ops: freeAddr(), policy: simPolicy(),
		policyPath: filepath.Join(dir, "p.yaml"), exited: make(chan struct{})}
	joinAt = freeAddr()
	secret := filepath.Join(dir, "seed")
	for path, text := range map[string]string{u.policyPath: u.policy.yaml(), secret: strings.Repeat("s", 40)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"-dir", dir, "-spoke", "north", "-policy", u.policyPath, "-listen", u.listen, "-admin", u.admin, "-ops", u.ops,
		"-fleet-listen", joinAt, "-seed-file", secret}, fleetFlags(certificate)...)
	u.cmd = command(append([]string{"door"}, flags...)...)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.out
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	u.ledger = newLedger(filepath.Join(dir, "spool"))
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	})
	bootstrap, err := command(append([]string{"envoy", "print", "-bootstrap"}, flags...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(path, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	argv := envoy.Command(lab.envoy, envoy.Door{}, path)
	u.beside(t, "envoy", exec.Command(argv[0], argv[1:]...))
	return u, joinAt
}

// certifiedWorker starts one with this certificate.
func (u *up) certifiedWorker(t *testing.T, name, door string, f mtls.Files) {
	t.Helper()
	u.beside(t, name, command("worker", "-name", name, "-spoke", "north", "-endpoint", "sim", "-dir", u.dir, "-doors", door,
		"-rates", ratesFile(t), "-tls-cert", f.Cert, "-tls-key", f.Key, "-tls-ca", f.CA))
}

// TestCertificatesBetweenDoorAndWorkers: workers join, and are reached, by their certificates alone; whoever calls a shim
// without a door's gets nowhere.
func TestCertificatesBetweenDoorAndWorkers(t *testing.T) {
	t.Parallel()
	ours, other := mtlstest.New(t), mtlstest.New(t)
	doors := ours.Issue(t, "127.0.0.1")
	u, joinAt := certifiedDoor(t, doors)
	workers := map[string]mtls.Files{"w-dns": ours.Issue(t, "w-dns"), "w-uri": ours.Issue(t, "spiffe://north/worker/w-uri")}
	for name, f := range workers {
		u.certifiedWorker(t, name, joinAt, f)
	}
	stranger := other.Issue(t, "stranger")
	stranger.CA = doors.CA
	u.certifiedWorker(t, "stranger", joinAt, stranger)
	eventually(t, startPatience, func() error { return u.serves("sim") })
	u.knows(t, "sim", 2)

	for _, w := range u.workerAddrs(t, "sim") {
		t.Run("past the door to "+w, func(t *testing.T) { u.pastTheDoor(t, w, doors, stranger, workers["w-dns"]) })
	}
	served := map[string]bool{}
	eventually(t, startPatience, func() error { // both, by chance
		for _, stream := range []bool{false, true} {
			body := operations[0].body
			if stream {
				body = streamed(body)
			}
			r := u.ok(t, post(u.key("main"), operations[0].path, body))
			u.ledger.usage(t, r.admission())
			served[u.ledger.served(t, r.admission()).GetWorker()] = true
		}
		if len(served) < 2 {
			return fmt.Errorf("served by %v", served)
		}
		return nil
	})
	if u.madeBy(t, "mac") == 0 {
		t.Error("no context is by MAC")
	}
	eventually(t, startPatience, func() error {
		log, err := os.ReadFile(filepath.Join(u.dir, "log", "stranger.log"))
		if err == nil && !strings.Contains(string(log), "unknown certificate authority") {
			err = fmt.Errorf("the stranger says %s", log)
		}
		return err
	})
	out, err := command("fleet", "status", "-dir", u.dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "endpoint sim: 2 of 2 workers can be picked") || strings.Contains(string(out), "stranger") {
		t.Errorf("fleet status: %v\n%s", err, out)
	}
}

// pastTheDoor calls a shim as nobody may; with a door's certificate the context is missing still.
func (u *up) pastTheDoor(t *testing.T, addr string, door, stranger, worker mtls.Files) {
	plain := post("none", operations[0].path, operations[0].body)
	if r := sendTo(t, addr, plain); r.status != http.StatusBadRequest {
		t.Errorf("unencrypted: %v", r)
	}
	for name, c := range map[string]struct {
		files mtls.Files
		want  string // of the error; empty: it is heard
	}{
		"a stranger's": {stranger, "unknown certificate authority"}, "another worker's": {worker, "bad certificate"}, "a door's": {door, ""},
	} {
		status, err := callShim(t.Context(), addr, c.files)
		if c.want == "" && (err != nil || status != http.StatusUnauthorized) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("with %s certificate: %d %v", name, status, err)
		}
	}
}

// callShim makes a request without a context. Whose the shim's certificate is does not matter here.
func callShim(ctx context.Context, addr string, f mtls.Files) (status int, err error) {
	k, err := mtls.Open(f, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	config := k.Peer(func(*x509.Certificate) error { return nil })
	tr := &http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	}}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+operations[0].path, strings.NewReader(operations[0].body))
	if err != nil {
		return 0, err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}
