package envoy

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// TestTLSToWorkers: only a worker whose certificate names it gets a request, and only a door's Envoy can make one.
func TestTLSToWorkers(t *testing.T) {
	ours, other := mtlstest.New(t), mtlstest.New(t)
	dir := t.TempDir()
	r := newRig(t, false, func(d *Door) {
		d.WorkerTLS, d.Spoke = ours.IssueInto(t, dir, nil, "door.test"), "north"
	})
	var caller atomic.Pointer[string] // serial number
	join := func(name string, f mtls.Files, uri bool) {
		keeper, err := mtls.Open(f, slog.New(slog.NewTextHandler(r.log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		r.joinWorker(fleet.Worker{Name: name, Endpoint: "large", ByURI: uri}, keeper.Server(func(c *x509.Certificate) error {
			serial := c.SerialNumber.String()
			caller.Store(&serial)
			return mtls.MayCall(c, "north", []string{"door.test"})
		}, "http/1.1"))
	}
	foreign := other.Issue(t, "foreign")
	foreign.CA = ours.Issue(t, "x").CA
	join("by-dns", ours.Issue(t, "by-dns"), false)
	join("by-uri", ours.Issue(t, "spiffe://north/worker/by-uri"), true)
	join("foreign", foreign, false)
	join("impostor", ours.Issue(t, "by-dns"), false)
	join("of-the-south", ours.Issue(t, "spiffe://south/worker/of-the-south"), true)
	join("deaf", other.Issue(t, "deaf"), false)
	r.addWorker("plain", "large")
	r.serveDoor()
	r.server.SetEndpoints([]string{"large"})
	r.startEnvoy()
	r.awaitAcked()

	r.post(t, r.list("by-dns")).served(t, "by-dns")
	r.post(t, r.list("by-uri")).served(t, "by-uri")
	for _, name := range []string{"foreign", "impostor", "of-the-south", "deaf", "plain"} {
		a := r.post(t, r.list(name))
		a.want(t, 503, "unavailable")
		r.nobodyAsked(t, a)
	}
	r.post(t, r.list("foreign", "impostor", "by-dns")).served(t, "by-dns")

	// A renewed certificate is taken up for new connections.
	r.workers["by-dns"].answers(t, func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("connection", "close") })
	before := caller.Load()
	ours.IssueInto(t, dir, nil, "door.test")
	r.eventually("the renewed certificate", func() bool {
		r.post(t, r.list("by-dns"))
		return *caller.Load() != *before
	})
}
