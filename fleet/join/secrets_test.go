package join

import (
	"bytes"
	"io"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

// taking is a stream of a shim that takes contexts by MAC, and what its first Welcome has shared.
func taking(t *testing.T, c workerv1.FleetClient, name, address string) (workerv1.Fleet_JoinClient, *workerv1.Secret) {
	t.Helper()
	s, err := c.Join(as(t, "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(hello(func(h *workerv1.Hello) { h.Worker, h.Address, h.Macs = name, address, true }))
	return s, next(t, s).GetWelcome().GetMac()
}

func TestASecretIsSharedWithThoseThatTakeOne(t *testing.T) {
	for name, c := range map[string]struct{ door, shim, want bool }{
		"both take it": {true, true, true}, "an old shim": {true, false, false}, "where others may listen in": {false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := &Server{Fleet: fleet.New(), Token: token, Beat: time.Minute, Macs: c.door}
			s, err := start(t, server).Join(as(t, "Bearer "+token))
			if err != nil {
				t.Fatal(err)
			}
			s.Send(hello(func(h *workerv1.Hello) { h.Macs = c.shim }))
			told := next(t, s).GetWelcome().GetMac()
			s.Send(beat(workerv1.State_STATE_READY))
			until(t, server.Fleet, "ready", func(v *fleet.View) bool { return v.Workers[0].State == fleet.Ready })
			shared, ok := server.Secret("10.0.0.1:8000")
			if ok != c.want || ok != (told != nil) {
				t.Fatalf("told %v, kept %v", told != nil, ok)
			}
			if ok && (told.Id != shared.ID() || !bytes.Equal(told.Secret, shared.Key())) {
				t.Error("the worker was told another")
			}
		})
	}
}

// A context is made with a secret only while the worker that it is for has taken it in, and its stream lives.
func TestASecretLivesAsItsStream(t *testing.T) {
	m := identity.NewMinter("door-1")
	server := &Server{Fleet: fleet.New(), Token: token, Beat: time.Minute, Macs: true, Keys: m.Keys}
	c := start(t, server)
	s, told := taking(t, c, "w1", "[::ffff:10.0.0.1]:8000")
	if _, ok := server.Secret("10.0.0.1:8000"); ok {
		t.Error("used before the worker has said anything")
	}
	s.Send(beat(workerv1.State_STATE_READY))
	until(t, server.Fleet, "ready", func(v *fleet.View) bool { return v.Workers[0].State == fleet.Ready })
	first, ok := server.Secret("10.0.0.1:8000")
	if !ok || first.ID() != told.Id {
		t.Fatal("not used when the worker is ready")
	}
	if _, ok := server.Secret("10.0.0.2:8000"); ok {
		t.Error("a stranger has one")
	}
	m.Announce()
	if again := next(t, s).GetWelcome().GetMac(); again.GetId() != told.Id || !bytes.Equal(again.GetSecret(), told.Secret) {
		t.Error("the next welcome of the stream has another")
	}
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	if _, ok := server.Secret("10.0.0.1:8000"); ok {
		t.Error("used after the stream has ended")
	}

	s, told = taking(t, c, "w1", "10.0.0.1:8000")
	s.Send(beat(workerv1.State_STATE_READY))
	until(t, server.Fleet, "ready", func(v *fleet.View) bool { return len(v.Workers) == 1 && v.Workers[0].State == fleet.Ready })
	if second, ok := server.Secret("10.0.0.1:8000"); !ok || second.ID() != told.Id || second == first {
		t.Error("joined again, it does not have a new one")
	}
}

// What ends late takes nothing from what came after it.
func TestASecretsSuccessorStays(t *testing.T) {
	server := &Server{Macs: true}
	w := &fleet.Worker{Addr: "10.0.0.1:8000"}
	h := &workerv1.Hello{Macs: true}
	old, fresh := server.share(h, w), server.share(h, w)
	old.known()
	fresh.known()
	old.forget()
	if s, ok := server.Secret(w.Addr); !ok || s != fresh.secret {
		t.Error("the old stream took the new secret away")
	}
	fresh.forget()
	if len(server.secrets.of) != 0 {
		t.Error("secrets stay for ever")
	}
}
