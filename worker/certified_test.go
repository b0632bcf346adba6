package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

// told is a log that tests read.
type told struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *told) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

func (l *told) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func keeper(t *testing.T, f mtls.Files, log *slog.Logger) *mtls.Keeper {
	t.Helper()
	k, err := mtls.Open(f, log)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// certifiedDoor is the doors' own service behind TLS, in the spoke "here".
func certifiedDoor(t *testing.T, f mtls.Files) (target string, server *join.Server, log *told) {
	t.Helper()
	log = &told{}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = &join.Server{Fleet: fleet.New(), Certified: true, Spoke: "here", Door: "door-1", Keys: identity.NewMinter("door-1").Keys,
		Seed: func() (uint64, <-chan struct{}) { return 7, nil }, Log: log.logger()}
	g := grpc.NewServer(grpc.Creds(keeper(t, f, log.logger()).Listen(func(*x509.Certificate) error { return nil })))
	workerv1.RegisterFleetServer(g, server)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	t.Cleanup(func() { g.Stop(); <-served })
	return lis.Addr().String(), server, log
}

// runDoor keeps the worker w1 joined until the test ends.
func runDoor(t *testing.T, target, host string, secure credentials.TransportCredentials) (*door, *told) {
	t.Helper()
	log := &told{}
	d := &door{target: target, host: host, secure: secure, states: newStates(), keys: newKeys(identity.NewVerifier("large"), time.Minute),
		doors: &doors{}, seeds: newSeeds(log.logger()), begun: &begun{}, log: log.logger(), unreached: 200 * time.Millisecond,
		hello: func(Description) *workerv1.Hello {
			return &workerv1.Hello{Worker: "w1", Endpoint: "large", Address: "10.0.0.1:8000", Engine: "sim", Version: "v1.2.3"}
		}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { d.run(ctx, ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done; d.keys.close() })
	return d, log
}

// TestAWorkerJoinsByItsCertificate, without a token; where it may not, each side's log says why.
func TestAWorkerJoinsByItsCertificate(t *testing.T) {
	ours, other := mtlstest.New(t), mtlstest.New(t)
	target, server, doorSays := certifiedDoor(t, ours.Issue(t, "door.test"))
	foreign := other.Issue(t, "w1")
	foreign.CA = ours.Issue(t, "any").CA
	old := keeper(t, ours.Issue(t, "w1"), quiet()).Client("door.test")
	stale := ours.IssueInto(t, t.TempDir(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "w1")
	pair, err := tls.LoadX509KeyPair(stale.Cert, stale.Key)
	if err != nil {
		t.Fatal(err)
	}
	old.Certificates = []tls.Certificate{pair}
	dial := func(f mtls.Files, name string) credentials.TransportCredentials {
		return keeper(t, f, quiet()).Dial(name)
	}
	for name, c := range map[string]struct {
		secure             credentials.TransportCredentials
		workerSay, doorSay string
	}{
		"of another authority":      {dial(foreign, "door.test"), "unknown certificate authority", "certificate signed by unknown authority"},
		"the door's is not trusted": {dial(other.Issue(t, "w1"), "door.test"), "certificate signed by unknown authority", "bad certificate"},
		"expired":                   {credentials.NewTLS(old), "expired certificate", "certificate has expired"},
		"another door's name":       {dial(ours.Issue(t, "w1"), "door-2.test"), "valid for door.test, not door-2.test", "bad certificate"},
		"another worker's": {dial(ours.Issue(t, "w2", "spiffe://here/worker/w2"), "door.test"),
			"the certificate names [\\\"w2\\\" \\\"spiffe://here/worker/w2\\\"]", "want the DNS name w1 or the URI spiffe://here/worker/w1"},
		"not encrypted": {nil, "no connection", "handshake failed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, log := runDoor(t, target, "", c.secure)
			eventually(t, "the worker says "+c.workerSay, func() bool { return log.has(c.workerSay) })
			eventually(t, "the door says "+c.doorSay, func() bool { return doorSays.has(c.doorSay) })
			if n := len(server.Fleet.View().Workers); n != 0 {
				t.Errorf("%d workers joined", n)
			}
		})
	}
	for _, c := range []struct{ worker, host, door string }{
		{"w1", "", "door.test"}, {"spiffe://here/worker/w1", "", "door.test"},
		{"w1", "door.test", ""}, {"w1", "doors.test", "door.test"}, // found by that host's name
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			d, _ := runDoor(t, target, c.host, dial(ours.Issue(t, c.worker), c.door))
			eventually(t, "joined", func() bool {
				names, _, _ := d.doors.now()
				return slices.Equal(names, []string{"door-1"})
			})
			w := server.Fleet.View().Workers[0]
			if w.ByURI != (c.worker != "w1") || w.Version != "v1.2.3" {
				t.Errorf("joined as %+v", w)
			}
			if seed, known, _ := d.seeds.current(); seed != 7 || !known {
				t.Errorf("seed %d %v", seed, known)
			}
		})
		eventually(t, "left", func() bool { return len(server.Fleet.View().Workers) == 0 })
	}
}

func TestATokenIsNeededWhereNoCertificateIs(t *testing.T) {
	secure := keeper(t, mtlstest.New(t).Issue(t, "w1"), quiet()).Dial("")
	for _, c := range []struct {
		doors  string
		secure credentials.TransportCredentials
		ok     bool
	}{{"a:1", nil, false}, {"a:1 b:1", secure, true}, {"a:1 unix:/s", secure, false}} {
		_, err := Config{Name: "w1", Endpoint: "large", Doors: strings.Fields(c.doors), DoorCredentials: c.secure,
			Engine: &fakeEngine{}, Journal: discard{}}.withDefaults()
		if (err == nil) != c.ok {
			t.Errorf("%s, encrypted %v: %v", c.doors, c.secure != nil, err)
		}
	}
}

// TestOneSeedASpoke: the first one counts while any door names it, and that doors differ is said.
func TestOneSeedASpoke(t *testing.T) {
	log := &told{}
	s := newSeeds(log.logger())
	one, two, three := &session{}, &session{}, &session{}
	wants := func(what string, seed uint64, causes int) {
		t.Helper()
		got, known, _ := s.current()
		if got != seed || known != (seed != 0) || len(s.causes(nil)) != causes {
			t.Errorf("%s: seed %d %v, causes %q", what, got, known, s.causes(nil))
		}
	}
	_, _, changed := s.current()
	s.name(one, "door-1", 0)
	wants("none yet", 0, 0)
	s.name(one, "door-1", 5)
	<-changed
	wants("one door", 5, 0)
	s.name(two, "door-0", 6)
	wants("they differ", 5, 1)
	if got := fmt.Sprint(s.causes([]string{"queue: long", "throttled"})); got != "[queue: long seed: doors differ, so some of them cannot find blocks here throttled]" {
		t.Errorf("causes %s", got)
	}
	if !log.has("door=door-0") {
		t.Error("nothing is said of it")
	}
	s.name(three, "door-2", 5)
	s.name(one, "door-1", 6)
	wants("the change has begun", 5, 1)
	s.name(three, "door-2", 6)
	wants("the change is over", 6, 0)
	s.forget(one)
	s.forget(two)
	s.forget(three)
	wants("no door is left", 6, 0)
}
