package doctor

import (
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// TestCertificates looks at a door and a worker on this machine, with files that fit and with such that do not.
func TestCertificates(t *testing.T) {
	ours, others := mtlstest.New(t), mtlstest.New(t)
	good := func(t *testing.T, names ...string) mtls.Files {
		return ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * 24 * time.Hour) }, names...)
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, door, worker *mtls.Files)
		wants  []string
	}{
		"good": {func(*testing.T, *mtls.Files, *mtls.Files) {}, nil},
		"expired": {func(t *testing.T, d, _ *mtls.Files) {
			*d = ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			}, "d1.test")
		}, []string{"cert-expired"}},
		"early": {func(t *testing.T, d, _ *mtls.Files) {
			*d = ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(90*24*time.Hour)
			}, "d1.test")
		}, []string{"cert-early"}},
		"ends soon": {func(t *testing.T, _, w *mtls.Files) {
			*w = ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = time.Now().Add(-99*time.Hour), time.Now().Add(time.Hour)
			}, "g1")
		}, []string{"cert-ends-soon"}},
		"for servers alone": {func(t *testing.T, _, w *mtls.Files) {
			*w = ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) {
				c.NotAfter, c.ExtKeyUsage = time.Now().Add(90*24*time.Hour), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			}, "g1")
		}, []string{"cert-usage"}},
		"somebody else's name": {func(t *testing.T, _, w *mtls.Files) { *w = good(t, "g2") }, []string{"cert-name"}},
		"another authority":    {func(t *testing.T, d, _ *mtls.Files) { d.CA = others.Issue(t, "x").CA }, []string{"cert-chain"}},
		"another's key":        {func(t *testing.T, d, w *mtls.Files) { d.Key = w.Key }, []string{"cert-unreadable"}},
		"one side alone":       {func(_ *testing.T, _, w *mtls.Files) { *w = mtls.Files{} }, []string{"tls-mixed"}},
	} {
		t.Run(name, func(t *testing.T) {
			door, worker := good(t, "d1.test"), good(t, "g1", "spiffe://north/worker/g1")
			c.change(t, &door, &worker)
			d := &process{here: true, about: About{Role: "door", Name: "d1", Spoke: "north", Flags: map[string]string{
				"fleet-listen": "0.0.0.0:8090", "fleet-cert": door.Cert, "fleet-key": door.Key, "fleet-ca": door.CA}}}
			w := &process{here: true, about: About{Role: "worker", Name: "g1", Spoke: "north", Flags: map[string]string{
				"doors": "d1.test:8090", "tls-cert": worker.Cert, "tls-key": worker.Key, "tls-ca": worker.CA}}}
			e := &exam{processes: []*process{d, w}}
			checkCertificates(t.Context(), e)
			wantIDs(t, e.report(), c.wants...)
		})
	}
}

// TestFiles: a token that others read, and a folder that they may write to.
func TestFiles(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	token := dir + "/join-token"
	if err := os.WriteFile(token, []byte(strings.Repeat("x", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func() Report {
		p := &process{here: true, about: About{Role: "worker", Name: "g1", Folder: dir, Flags: map[string]string{"join-token-file": "join-token", "dir": "."}}}
		e := &exam{Target: Target{Dirs: []string{dir}}, processes: []*process{p}}
		checkFiles(t.Context(), e)
		return without(e.report(), []string{"disk-low", "disk-full"})
	}
	_ = os.Chmod(dir, 0o755)
	wantIDs(t, look())
	_ = os.Chmod(token, 0o644)
	wantIDs(t, look(), "secret-open")
	_ = os.Chmod(token, 0o640)
	_ = os.Chmod(dir, 0o777)
	wantIDs(t, look(), "folder-open")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	wantIDs(t, look())
}
