package worker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
)

// realDoor is the doors' own service, which the shim joins beside the fake one.
type realDoor struct {
	*join.Server
	minter *identity.Minter
	target string
}

func newRealDoor(t *testing.T) *realDoor {
	t.Helper()
	return newRealDoorThat(t, nil)
}

// newRealDoorThat is one that wants to hear what has begun.
func newRealDoorThat(t *testing.T, began func(admission, endpoint, addr string)) *realDoor {
	t.Helper()
	m := identity.NewMinter("door-real")
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	d := &realDoor{minter: m, target: "unix:" + l.Addr().String(), Server: &join.Server{
		Fleet: fleet.New(), Token: "token", Door: "door-real", Keys: m.Keys, Beat: time.Minute, Log: quiet(), Began: began}}
	g := grpc.NewServer()
	workerv1.RegisterFleetServer(g, d.Server)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-served })
	return d
}

// join makes a shim of this door too, and waits until it is one.
func (d *realDoor) join(t *testing.T, engine string, change func(*Config)) *shim {
	t.Helper()
	s := newShim(t, engine, func(c *Config) {
		c.Doors = append(c.Doors, d.target)
		if change != nil {
			change(c)
		}
	})
	eventually(t, "joined the real door", func() bool { return slices.Contains(s.Status().Doors, "door-real") })
	return s
}

// cancel cuts a request, and waits until the shim has heard of it.
func (d *realDoor) cancel(t *testing.T, s *shim, admission, reason string) {
	t.Helper()
	for _, a := range []string{admission, "after " + admission} { // they come in order
		if n := d.Cancel("large", a, reason); n != 1 {
			t.Fatalf("%d shims were told", n)
		}
	}
	eventually(t, "the cut is known", func() bool {
		s.Worker.running.mu.Lock()
		defer s.Worker.running.mu.Unlock()
		return s.Worker.running.early["after "+admission] != nil
	})
}

// answered is what a client got.
type answered struct {
	*http.Response
	body string
}

// begin sends a request, and returns when it is in the shim.
func (s *shim) begin(t *testing.T, q *http.Request) <-chan answered {
	t.Helper()
	got := make(chan answered, 1)
	go func() {
		resp, err := s.client.Do(q)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		got <- answered{resp, string(b)}
	}()
	eventually(t, "running", func() bool {
		s.Worker.running.mu.Lock()
		defer s.Worker.running.mu.Unlock()
		return len(s.Worker.running.here) == 1
	})
	return got
}

// endless streams until its request ends, and says so.
func endless(t *testing.T, ended chan<- string) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Accept") == "nothing" {
			<-r.Context().Done()
		}
		for n := 1; r.Context().Err() == nil; n++ {
			sse(w, fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":%d}}\n\n", n))
			time.Sleep(time.Millisecond)
		}
		ended <- r.Header.Get("X-Request-Id")
	})
}

// Both keys of a door that changes its key are good, and the old one as long as a context of it lives.
func TestDoorChangesItsKey(t *testing.T) {
	d := newRealDoor(t)
	s := d.join(t, server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) }),
		func(c *Config) { c.keyLife = time.Hour })
	n := 0
	verify := func() error {
		n++
		_, err := s.verifier.Verify(d.minter.Mint(identity.Context{Admission: fmt.Sprint("k", n), Endpoint: "large"}, time.Now()), time.Now())
		return err
	}
	old := d.minter.Mint(identity.Context{Admission: "old", Endpoint: "large"}, time.Now())
	late := d.minter.Mint(identity.Context{Admission: "late", Endpoint: "large"}, time.Now())
	holds := func(id string) bool {
		s.keys.mu.Lock()
		defer s.keys.mu.Unlock()
		return s.keys.held[id] != nil
	}
	d.minter.Announce()
	eventually(t, "the next key is known", func() bool { return holds("door-real#2") })
	if err := verify(); err != nil {
		t.Errorf("the key in use, another announced: %v", err)
	}
	d.minter.Rotate()
	if err := verify(); err != nil {
		t.Errorf("the new key: %v", err)
	}
	d.minter.Forget()
	eventually(t, "the old key is let go", func() bool {
		s.keys.mu.Lock()
		defer s.keys.mu.Unlock()
		return s.keys.held["door-real"].streams == 0
	})
	if _, err := s.verifier.Verify(old, time.Now()); err != nil {
		t.Errorf("a context of the old key: %v", err)
	}
	s.keys.expire("door-real", s.keys.held["door-real"])
	if _, err := s.verifier.Verify(late, time.Now()); err == nil || holds("door-real") {
		t.Errorf("the old key stays for ever: %v", err)
	}
}
