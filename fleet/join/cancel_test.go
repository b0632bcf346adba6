package join

import (
	"fmt"
	"strings"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

// joined is a stream of a shim that was welcomed.
func joined(t *testing.T, c workerv1.FleetClient, name, endpoint string, port int) workerv1.Fleet_JoinClient {
	t.Helper()
	s, err := c.Join(as(t, "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(hello(func(h *workerv1.Hello) {
		h.Worker, h.Endpoint, h.Address = name, endpoint, fmt.Sprint("10.0.0.1:", port)
	})); err != nil {
		t.Fatal(err)
	}
	if m := next(t, s); m.GetWelcome() == nil {
		t.Fatalf("%v came before the welcome", m)
	}
	return s
}

func next(t *testing.T, s workerv1.Fleet_JoinClient) *workerv1.JoinResponse {
	t.Helper()
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCancelReachesTheShimsOfTheEndpoint(t *testing.T) {
	server := &Server{Fleet: fleet.New(), Token: token, Beat: time.Minute}
	c := start(t, server)
	if n := server.Cancel("large", "a", "revoked"); n != 0 {
		t.Errorf("%d shims were told, and none is here", n)
	}
	one, two, other := joined(t, c, "w1", "large", 1), joined(t, c, "w2", "large", 2), joined(t, c, "w3", "small", 3)
	for i := range 300 {
		if n := server.Cancel("large", fmt.Sprint("a", i), "revoked"); n != 2 {
			t.Fatalf("%d shims were told", n)
		}
	}
	if n := server.Cancel("small", "b", "other"); n != 1 {
		t.Fatalf("%d shims were told", n)
	}
	for _, s := range []workerv1.Fleet_JoinClient{one, two} {
		for i := range 300 {
			if got := next(t, s).GetCancel(); got.GetAdmission() != fmt.Sprint("a", i) || got.GetReason() != "revoked" {
				t.Fatalf("%dth: %v", i, got)
			}
		}
	}
	if got := next(t, other).GetCancel(); got.GetAdmission() != "b" || got.GetReason() != "other" {
		t.Fatalf("%v", got)
	}
	if err := one.CloseSend(); err != nil {
		t.Fatal(err)
	}
	until(t, server.Fleet, "gone", func(v *fleet.View) bool { return len(v.Workers) == 2 })
	for deadline := time.Now().Add(2 * time.Minute); server.Cancel("large", "c", "revoked") != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("one that has left is still told")
		}
	}
}

// A shim that takes nothing holds up neither the caller nor the other shims, and what waits for it is bounded.
func TestASlowShimHoldsUpNobody(t *testing.T) {
	server := &Server{Fleet: fleet.New(), Token: token, Beat: time.Minute, queue: 8}
	c := start(t, server)
	joined(t, c, "slow", "large", 1) // and is not read from again
	fast := joined(t, c, "fast", "large", 2)
	long := strings.Repeat("x", 16<<10) // soon fills the slow shim's window
	for n := 0; ; n++ {
		admission := fmt.Sprint(n, long)
		told := server.Cancel("large", admission, "revoked")
		if got := next(t, fast).GetCancel().GetAdmission(); got != admission {
			t.Fatalf("the fast shim got %.20q for the %dth", got, n)
		}
		if told == 1 {
			break
		}
		if n == 1000 {
			t.Fatal("what waits for the slow shim has no bound")
		}
	}
}

// A shim hears of a new key before the door signs with it, and of the old one for as long as its contexts may come: also one
// that joins in between.
func TestKeysChange(t *testing.T) {
	m := identity.NewMinter("door-1")
	c := start(t, &Server{Fleet: fleet.New(), Token: token, Door: "door-1", Keys: m.Keys, Beat: time.Minute})
	s := joined(t, c, "w1", "large", 1)
	ids := func(s workerv1.Fleet_JoinClient) string {
		w := next(t, s).GetWelcome()
		var all []string
		for _, k := range w.GetKeys() {
			all = append(all, k.Id)
		}
		return w.GetDoor() + ": " + strings.Join(all, " ")
	}
	m.Announce()
	if got := ids(s); got != "door-1: door-1 door-1#2" {
		t.Errorf("announced: %s", got)
	}
	m.Rotate()
	if got := ids(s); got != "door-1: door-1#2 door-1" {
		t.Errorf("rotated: %s", got)
	}
	late, err := c.Join(as(t, "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	late.Send(hello(func(h *workerv1.Hello) { h.Worker, h.Address = "late", "10.0.0.2:1" }))
	if got := ids(late); got != "door-1: door-1#2 door-1" {
		t.Errorf("to one that joins then: %s", got)
	}
	m.Forget()
	if got := ids(s); got != "door-1: door-1#2" {
		t.Errorf("forgotten: %s", got)
	}
}
