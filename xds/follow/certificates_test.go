package follow

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

func keeper(t *testing.T, f mtls.Files) *mtls.Keeper {
	t.Helper()
	k, err := mtls.Open(f, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func certified(k *mtls.Keeper) func(*Config) {
	return func(c *Config) { c.Certificates, c.Token, c.Name = k, "", "hub.test" }
}

// TestDoorsAreWhoTheirCertificatesSay: by the spoke's name, or by the door's own URI; nobody else is let in, and hears why.
func TestDoorsAreWhoTheirCertificatesSay(t *testing.T) {
	a := mtlstest.New(t)
	h := newHub(t, keeper(t, a.Issue(t, "hub.test")))
	h.Next(pushtest.Base())
	for name, good := range map[string]bool{"s": true, "spiffe://s/door/d": true, "spiffe://s/door/e": false, "s2": false, "*": false, "spiffe://s/worker/d": false, "s spiffe://s/worker/d": false} {
		as := certified(keeper(t, a.Issue(t, strings.Fields(name)...)))
		if good {
			d := newDoor(t, h, "d", as)
			if err := d.start(); err != nil {
				t.Fatal(err)
			}
			d.has(1)
			d.stop()
			continue
		}
		source := refused(t, h, as)
		if st := source.Status(); !strings.Contains(st.Err, "want the DNS name s or the URI spiffe://s/door/d") {
			t.Errorf("%s: %+v", name, st)
		}
	}
	stranger := refused(t, h, certified(keeper(t, mtlstest.New(t).Issue(t, "s"))))
	if st := stranger.Status(); !strings.Contains(st.Err, "unknown authority") {
		t.Errorf("of another authority: %+v", st)
	}
}

// refused is a source that the hub does not let in, after it has heard so.
func refused(t *testing.T, h *hub, change func(*Config)) *Hub {
	t.Helper()
	failed := make(chan error)
	cfg := Config{Address: h.addr, Spoke: "s", Door: "d", Retry: time.Millisecond, Log: quiet}
	change(&cfg)
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { failed <- source.Run(ctx, nil, nil) }()
	t.Cleanup(func() { cancel(); <-failed; _ = source.Close() })
	await(t, "refused", func() bool { st := source.Status(); return !st.Connected && st.Err != "" && st.Err != notCalled })
	return source
}

// TestCertificateThatIsNotValidYet: a clock is wrong. Whoever has such a certificate does not start with it; a door whose hub
// has one serves what it has, says why, and goes on when that is over.
func TestCertificateThatIsNotValidYet(t *testing.T) {
	a := mtlstest.New(t)
	tomorrow := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(24*time.Hour), time.Now().Add(48*time.Hour)
	}
	early := a.IssueInto(t, t.TempDir(), tomorrow, "hub.test")
	if _, err := mtls.Open(early, quiet); err == nil || !strings.Contains(err.Error(), "is not valid before") {
		t.Fatalf("%v", err)
	}
	pair, err := tls.LoadX509KeyPair(early.Cert, early.Key)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	hasty := grpc.NewServer() // shows it all the same: its clock is a day ahead
	served := make(chan struct{})
	go func() { _ = hasty.Serve(lis); close(served) }()

	h := newHub(t, keeper(t, a.Issue(t, "hub.test")))
	h.Next(pushtest.Base())
	d := newDoor(t, h, "d", certified(keeper(t, a.Issue(t, "s"))))
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.has(1)
	d.stop()
	right := h.addr
	h.addr = lis.Addr().String()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the door says why", func() bool { return strings.Contains(d.source.Status().Err, "not yet valid") })
	if st := d.agent.Status(); st.Revision != 1 || !st.FromDisk {
		t.Errorf("%+v", st)
	}
	d.stop()
	hasty.Stop()
	<-served
	h.addr = right
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.has(1)
}

// TestCertificateExpiresUnderALivingConnection: the connection ends with it, and the renewed one is taken without a restart.
func TestCertificateExpiresUnderALivingConnection(t *testing.T) {
	a, dir := mtlstest.New(t), t.TempDir()
	h := newHub(t, keeper(t, a.Issue(t, "hub.test")))
	h.Next(pushtest.Base())
	end := time.Now()
	var d *door
	for life := 3 * time.Second; d == nil; life *= 3 { // a slow machine needs longer before it is on the line
		end = time.Now().Add(life)
		k := keeper(t, a.IssueInto(t, dir, func(c *x509.Certificate) { c.NotAfter = end }, "s"))
		tried := newDoor(t, h, "d", certified(k))
		if err := tried.start(); err == nil {
			d = tried
		} else if life > time.Minute {
			t.Fatal(err)
		}
	}
	d.has(1)
	first, _ := h.holder("d")
	a.IssueInto(t, dir, nil, "s")
	await(t, "another connection", func() bool {
		now, _ := h.holder("d")
		return now.Connected && now.From != first.From && now.State() == "current"
	})
	h.Next([]policy.Resource{pushtest.Team("after", 1)})
	d.has(2)
}
