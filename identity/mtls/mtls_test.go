package mtls_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func open(t *testing.T, f mtls.Files) *mtls.Keeper {
	t.Helper()
	k, err := mtls.Open(f, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func anybody(*x509.Certificate) error { return nil }

// meet makes a handshake, and reads to the end: with TLS 1.3 a client learns only so that it was refused.
func meet(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		raw, err := lis.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		s := tls.Server(raw, server)
		_, _ = s.Read(make([]byte, 1))
		_ = s.Close()
	}()
	defer func() { lis.Close(); <-served }()
	raw, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(2 * time.Minute))
	c := tls.Client(raw, client)
	if err := c.Handshake(); err != nil {
		return tls.ConnectionState{}, err
	}
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), nil
}

// TestWhoMayConnect tells what each side says when the other is not right.
func TestWhoMayConnect(t *testing.T) {
	ours, other := mtlstest.New(t), mtlstest.New(t)
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	door, worker := ours.Issue(t, "door.test"), ours.Issue(t, "w1")
	foreign := func(f mtls.Files) mtls.Files { f.CA = door.CA; return f } // knows the door, is not known
	asClient := func(f mtls.Files) *tls.Config { return open(t, f).Client("door.test") }
	old := ours.IssueInto(t, t.TempDir(), expired, "w1")
	pair, err := tls.LoadX509KeyPair(old.Cert, old.Key)
	if err != nil {
		t.Fatal(err)
	}
	stale := asClient(worker)
	stale.Certificates = []tls.Certificate{pair}
	ancient := asClient(worker)
	ancient.MinVersion, ancient.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	bare := asClient(worker)
	bare.Certificates = nil
	wrongName := open(t, worker).Client("other.test")
	picky := func(c *x509.Certificate) error { return mtls.IsWorker(c, "north", "w2") }
	for name, c := range map[string]struct {
		accept func(*x509.Certificate) error
		client *tls.Config
		want   string // empty: good
	}{
		"good":             {anybody, asClient(worker), ""},
		"wrong authority":  {anybody, asClient(foreign(other.Issue(t, "w1"))), "unknown certificate authority"},
		"wrong for client": {anybody, asClient(other.Issue(t, "w1")), "certificate signed by unknown authority"},
		"wrong name":       {anybody, wrongName, "certificate is valid for door.test, not other.test"},
		"not accepted":     {picky, asClient(worker), "bad certificate"},
		"expired":          {anybody, stale, "expired certificate"},
		"no certificate":   {anybody, bare, "certificate required"},
		"TLS 1.2":          {anybody, ancient, "protocol version"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := meet(t, open(t, door).Server(c.accept), c.client)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestRenewedFilesCount without a restart, both sides; bad ones do not.
func TestRenewedFilesCount(t *testing.T) {
	a, dir := mtlstest.New(t), t.TempDir()
	first := a.IssueInto(t, dir, nil, "door.test")
	door, worker := open(t, first), open(t, a.Issue(t, "w1", "spiffe://north/worker/w1"))
	serial := func() string {
		t.Helper()
		s, err := meet(t, door.Server(anybody), worker.Client("door.test"))
		if err != nil {
			t.Fatal(err)
		}
		return s.PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	a.IssueInto(t, dir, nil, "door.test")
	after := serial()
	if before == after {
		t.Error("the renewed certificate is not taken up")
	}
	if err := os.WriteFile(first.Key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != after {
		t.Errorf("with a broken key: certificate %s, want %s", got, after)
	}
	a.IssueInto(t, dir, nil, "door.test")
	if got := serial(); got == after {
		t.Error("one that is good again is not taken up")
	}
}

func TestPeersAreWorkersOfTheSpoke(t *testing.T) {
	a := mtlstest.New(t)
	caller := open(t, a.Issue(t, "w1", "spiffe://north/worker/w1"))
	for names, want := range map[string]string{
		"spiffe://north/worker/w2": "", "spiffe://south/worker/w2": "want a URI that begins with spiffe://north/worker/", "w2": "want a URI",
	} {
		server := open(t, a.Issue(t, names)).Server(func(c *x509.Certificate) error { return mtls.MayCall(c, "north", nil) })
		_, err := meet(t, server, caller.Peer(func(c *x509.Certificate) error { return mtls.IsPeer(c, "north") }))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", names, err)
		}
	}
	stranger := open(t, mtlstest.New(t).Issue(t, "spiffe://north/worker/w2"))
	if _, err := meet(t, stranger.Server(anybody), caller.Peer(anybody)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("of another authority: %v", err)
	}
}

func TestWhoseCertificate(t *testing.T) {
	a := mtlstest.New(t)
	for _, c := range []struct {
		names        []string
		worker, call bool
	}{
		{[]string{"w1"}, true, false},
		{[]string{"spiffe://north/worker/w1"}, true, true},
		{[]string{"spiffe://north/worker/w10"}, false, true},
		{[]string{"spiffe://south/worker/w1"}, false, false},
		{[]string{"*"}, false, false},
		{[]string{"*.test"}, false, true},
		{[]string{"door.test"}, false, true},
		{[]string{"10.0.0.7"}, false, true},
		{[]string{"spiffe://north/door/d1"}, false, true},
		{[]string{"spiffe://south/door/d1"}, false, false},
		{nil, false, false},
	} {
		leaf := open(t, a.Issue(t, c.names...)).Leaf()
		if err := mtls.IsWorker(leaf, "north", "w1"); (err == nil) != c.worker {
			t.Errorf("%v: is it w1? %v", c.names, err)
		}
		if err := mtls.MayCall(leaf, "north", []string{"door.test", "10.0.0.7"}); (err == nil) != c.call {
			t.Errorf("%v: may it call? %v", c.names, err)
		}
	}
}

func TestWhatIsWrongIsOneSentence(t *testing.T) {
	a := mtlstest.New(t)
	good := a.Issue(t, "w1")
	with := func(change func(*x509.Certificate)) mtls.Files { return a.IssueInto(t, t.TempDir(), change, "w1") }
	for name, c := range map[string]struct {
		files mtls.Files
		want  string
	}{
		"half":        {mtls.Files{Cert: good.Cert, Key: good.Key}, "needs a certificate, its key, and the authorities"},
		"missing":     {mtls.Files{Cert: "/nowhere", Key: good.Key, CA: good.CA}, "no such file"},
		"unmatched":   {mtls.Files{Cert: good.Cert, Key: a.Issue(t, "w1").Key, CA: good.CA}, "does not match"},
		"no CA":       {mtls.Files{Cert: good.Cert, Key: good.Key, CA: good.Key}, "holds no certificate of an authority"},
		"expired":     {with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "expired at"},
		"early":       {with(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), "not valid before"},
		"one-sided":   {with(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), "extended key usage"},
		"any use":     {with(func(c *x509.Certificate) { c.ExtKeyUsage = nil }), ""},
		"all is well": {good, ""},
	} {
		if _, err := mtls.Open(c.files, quiet); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
