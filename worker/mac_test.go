package worker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
)

// plainEngine answers everything.
func plainEngine(t *testing.T) string {
	return server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"choices":[]}`) })
}

// byMac is a good request but that its context is by MAC.
func (s *shim) byMac(t *testing.T, m *identity.Minter, admission string, to ...identity.Secret) *http.Request {
	t.Helper()
	q := s.request(t, context.Background(), admission, "/v1/chat/completions", streamBody)
	q.Header.Set("X-Spokegate-Context", m.MintFor(identity.Context{Admission: admission, Key: "k", Team: "t", Model: "m", Endpoint: "large",
		Revision: 3, Body: identity.BodyDigest([]byte(streamBody))}, time.Now(), to))
	return q
}

// What the real door shares with a shim is what its contexts are served by, and of before a re-join for as long as they live. Of all
// of them it hears that they have begun.
func TestContextsByMacAreServed(t *testing.T) {
	begun := make(chan string, 9)
	d := newRealDoorThat(t, func(admission, _, _ string) { begun <- admission })
	d.Macs = true
	s := d.join(t, server(t, streamsOrNot), func(c *Config) { c.keyLife = time.Hour })
	address := s.Worker.Addr()
	ready := func() bool {
		all := d.Fleet.View().Workers
		return len(all) == 1 && all[0].State == fleet.Ready
	}
	eventually(t, "ready", ready)
	first, ok := d.Secret(address)
	if !ok {
		t.Fatal("nothing is shared with a worker that is ready")
	}
	other := identity.NewSecret() // of another worker
	serves := func(q *http.Request, admission string) {
		t.Helper()
		if resp, body := s.do(t, q); resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", admission, resp.StatusCode, body)
		}
		if got := wait(t, begun); got != admission {
			t.Errorf("the door has heard of %q, want %q", got, admission)
		}
	}
	serves(s.byMac(t, d.minter, "a", other, first), "a")
	for name, c := range map[string]struct {
		q      *http.Request
		reason string
	}{
		"a second time":          {s.byMac(t, d.minter, "a", other, first), contextReplayed},
		"for another worker":     {s.byMac(t, d.minter, "b", other), contextUnknownKey},
		"with another's tag too": {s.byMac(t, d.minter, "b", first, first), contextInvalid},
	} {
		resp, _ := s.do(t, c.q)
		if got := resp.Header.Get(refusedHeader); got != c.reason {
			t.Errorf("%s: refused as %q, want %s", name, got, c.reason)
		}
	}
	under := s.byMac(t, d.minter, "under way", first)
	s.engine.lives <- Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e2"}} // said goodbye, and joined again
	eventually(t, "joined again", func() bool {
		second, ok := d.Secret(address)
		return ok && second != first && ready()
	})
	second, _ := d.Secret(address)
	serves(under, "under way")
	serves(s.byMac(t, d.minter, "now", second), "now")
	s.keys.mu.Lock()
	held := s.keys.held[secretPrefix+first.ID()]
	s.keys.mu.Unlock()
	s.keys.expire(secretPrefix+first.ID(), held)
	resp, _ := s.do(t, s.byMac(t, d.minter, "late", first))
	if got := resp.Header.Get(refusedHeader); got != contextUnknownKey {
		t.Errorf("of before, when its contexts have expired: refused as %q", got)
	}
}

// Two doors share each a secret with the shim, which serves both, and takes no third one's.
func TestEachDoorHasItsSecret(t *testing.T) {
	one, two := newRealDoor(t), newRealDoor(t)
	one.Macs, two.Macs, two.Door = true, true, "door-two"
	s := one.join(t, plainEngine(t), func(c *Config) { c.Doors = append(c.Doors, two.target) })
	for _, d := range []*realDoor{one, two} {
		eventually(t, "shared", func() bool { _, ok := d.Secret(s.Worker.Addr()); return ok })
		secret, _ := d.Secret(s.Worker.Addr())
		if resp, body := s.do(t, s.byMac(t, d.minter, d.Door, secret)); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", d.Door, resp.StatusCode, body)
		}
	}
}

// A secret of the wrong form ends the stream, as a key does: nothing of its welcome is kept.
func TestASecretOfTheWrongFormIsRefused(t *testing.T) {
	bad := newDoor(t, "door-bad")
	bad.secret = &workerv1.Secret{Id: "AAAAAAAAAAA", Secret: make([]byte, 31)}
	s := newShim(t, plainEngine(t), func(c *Config) { c.Doors, c.keyLife = append(c.Doors, bad.target), time.Millisecond })
	eventually(t, "it was tried twice", func() bool { hellos, _ := bad.seen(); return hellos >= 2 })
	eventually(t, "its key is gone", func() bool {
		_, err := s.verifier.Verify(bad.minter.Mint(identity.Context{Admission: "x", Endpoint: "large"}, time.Now()), time.Now())
		return errors.Is(err, identity.ErrUnknownKey)
	})
	if _, beats := bad.seen(); beats != 0 {
		t.Errorf("it was told %d times how the worker is", beats)
	}
	bad.mu.Lock()
	defer bad.mu.Unlock()
	if !bad.hellos[0].Macs {
		t.Error("doors are not told that the shim takes contexts by MAC")
	}
}

// A secret and a key of the same id are two things.
func TestSecretsOutliveTheirStreams(t *testing.T) {
	r := &ring{keys: map[string]ed25519.PublicKey{}}
	k := newKeys(r, time.Hour)
	defer k.close()
	const id = "AAAAAAAAAAA"
	secret := bytes.Repeat([]byte{2}, 32)
	if err := k.hold(id, bytes.Repeat([]byte{1}, 32)); err != nil {
		t.Fatal(err)
	}
	as, err := k.holdSecret(id, secret)
	if err != nil || !bytes.Equal(r.keys[as], secret) || bytes.Equal(r.keys[id], secret) {
		t.Fatalf("%v: %v", err, r.keys)
	}
	k.release([]string{as})
	if !r.has(as) {
		t.Error("the secret went with its stream")
	}
	if again, err := k.holdSecret(id, secret); err != nil || again != as || k.held[as].timer != nil {
		t.Errorf("the timer still runs after the stream came back: %v", err)
	}
	k.life = 0
	k.release([]string{as})
	eventually(t, "the secret is gone", func() bool { return !r.has(as) })
	if !r.has(id) {
		t.Error("the key went with the secret")
	}
}
