package worker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
)

// gate is an engine whose answers wait.
func gate(t *testing.T) (url string, asked, open chan struct{}) {
	asked, open = make(chan struct{}, 10), make(chan struct{})
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		asked <- struct{}{}
		select {
		case <-open:
			sse(w, "data: [DONE]\n\n")
		case <-r.Context().Done():
		}
	}), asked, open
}

type result struct {
	status int
	body   string
	err    error
}

func (s *shim) async(t *testing.T, admission string) <-chan result {
	q := s.request(t, context.Background(), admission, "/v1/chat/completions", streamBody)
	out := make(chan result, 1)
	go func() {
		resp, err := s.client.Do(q)
		if err != nil {
			out <- result{err: err}
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		out <- result{resp.StatusCode, string(b), err}
	}()
	return out
}

func TestDrain(t *testing.T) {
	url, asked, open := gate(t)
	s := newShim(t, url, nil)
	running := s.async(t, "old")
	<-asked
	s.stop()
	eventually(t, "draining at the door", func() bool { return strings.HasSuffix(s.door.states(), "draining") })
	resp, body := s.do(t, s.request(t, context.Background(), "new", "/v1/chat/completions", streamBody))
	if resp.StatusCode != 503 || resp.Header.Get("X-Spokegate-Refused") != "draining" || resp.Header.Get("Retry-After") == "" || errorCode(t, body) != "unavailable" {
		t.Errorf("new request: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	select {
	case <-s.engine.ran:
		t.Error("the engine was stopped with a request in flight")
	case <-time.After(50 * time.Millisecond):
	}
	close(open)
	if r := <-running; r.err != nil || !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Errorf("old request: %+v", r)
	}
	s.end(t)
	if got := s.door.states(); got != "ready draining stopped" {
		t.Errorf("told %q", got)
	}
	if r := s.journal.one(t, "old"); r.Outcome != "complete" || len(s.journal.of("new")) != 0 {
		t.Errorf("%v", r)
	}
}

func TestDrainTimesOut(t *testing.T) {
	url, _, _ := gate(t)
	s := newShim(t, url, func(c *Config) { c.DrainTimeout = 20 * time.Millisecond })
	resp, err := s.client.Do(s.request(t, t.Context(), "a", "/v1/chat/completions", streamBody)) // its first event has come
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.end(t)
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "upstream_cut") {
		t.Errorf("%q %v", body, err)
	}
	if r := s.journal.one(t, "a"); r.Outcome != "upstream_cut" || r.GetCompletionTokens() != 1 {
		t.Errorf("%v", r)
	}
}

func TestEngineStates(t *testing.T) {
	s := newShim(t, server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}), nil)
	if h := s.door.hellos[0]; h.Worker != "w1" || h.Endpoint != "large" || h.Address != s.Addr() || h.Engine != "attached" {
		t.Errorf("hello %v", h)
	}
	if s.door.tokens[0] != "Bearer token" {
		t.Errorf("token %q", s.door.tokens[0])
	}
	s.engine.lives <- Life{State: workerv1.State_STATE_FAILED, Reason: "burnt", Description: Description{Epoch: "e1"}}
	eventually(t, "failed at the door", func() bool { return strings.HasSuffix(s.door.states(), "failed(burnt)") })
	resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/messages", chatBody))
	if resp.StatusCode != 503 || resp.Header.Get("X-Spokegate-Refused") != "failed" || errorCode(t, body) != "anthropic overloaded_error" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	// A new run of the engine is announced by a new Hello, after the old stream has ended.
	s.engine.lives <- Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e2", BlockSize: 32, Blocks: 7}}
	eventually(t, "ready again", func() bool { return strings.HasSuffix(s.door.states(), "ready") })
	s.door.mu.Lock()
	last, joined := s.door.hellos[len(s.door.hellos)-1], s.door.joined
	s.door.mu.Unlock()
	if last.Epoch != "e2" || last.BlockSize != 32 || last.Blocks != 7 || joined != 1 {
		t.Errorf("hello %v, %d streams", last, joined)
	}
	if resp, body := s.do(t, s.request(t, context.Background(), "b", "/v1/chat/completions", chatBody)); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestBeatsAndRejoin(t *testing.T) {
	s := newShim(t, server(t, nil), nil)
	_, beats := s.door.seen()
	eventually(t, "ten more beats", func() bool { _, n := s.door.seen(); return n >= beats+10 })
	// The door ends the stream: joined again.
	s.door.mu.Lock()
	close(s.door.kick)
	s.door.kick = make(chan struct{})
	s.door.mu.Unlock()
	eventually(t, "joined again", func() bool { n, _ := s.door.seen(); return n == 2 })
	// The door dies and comes back at the same address with another key: joined again, and the new key is the one trusted.
	address := s.door.target
	old := s.context(t, "old")
	s.door.stop()
	fresh := identity.NewMinter("door-1")
	s.door.minter = fresh
	s.door.start(t, address)
	eventually(t, "joined the third time", func() bool { n, _ := s.door.seen(); return n == 3 })
	eventually(t, "the new key is trusted", func() bool {
		_, err := s.verifier.Verify(s.context(t, "new"), time.Now())
		return err == nil
	})
	if _, err := s.verifier.Verify(old, time.Now()); err == nil {
		t.Error("the old key is still trusted")
	}
}

func TestSeveralDoors(t *testing.T) {
	second := newDoor(t, "door-2")
	s := newShim(t, server(t, func(w http.ResponseWriter, _ *http.Request) { sse(w, "data: [DONE]\n\n") }),
		func(c *Config) { c.Doors = append(c.Doors, second.target, "127.0.0.1:1") })
	eventually(t, "ready at the second", func() bool { return second.states() == "ready" })
	for _, m := range []*identity.Minter{s.door.minter, second.minter} {
		q := s.request(t, context.Background(), "", "/v1/chat/completions", streamBody)
		q.Header.Set("X-Spokegate-Context", m.Mint(identity.Context{Admission: m.Door(), Model: "m", Endpoint: "large"}, time.Now()))
		if resp, body := s.do(t, q); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", m.Door(), resp.StatusCode, body)
		}
	}
}

// With no door at all the worker ends as quickly.
func TestStopsWithoutDoors(t *testing.T) {
	w, err := New(Config{Name: "w", Endpoint: "e", Listen: "127.0.0.1:0", Doors: []string{"127.0.0.1:1"}, JoinToken: "t",
		Engine: newFakeEngine(t, "http://127.0.0.1:1"), Journal: &journal{}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("still running")
	}
}

// ring records what a verifier is told.
type ring struct {
	mu   sync.Mutex
	keys map[string]ed25519.PublicKey
}

func (r *ring) SetKey(door string, k ed25519.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[door] = k
}

func (r *ring) RemoveKey(door string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, door)
}

func (r *ring) SetSecret(s identity.Secret) { r.SetKey(secretPrefix+s.ID(), s.Key()) }
func (r *ring) RemoveSecret(id string)      { r.RemoveKey(secretPrefix + id) }

func (r *ring) has(door string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[door] != nil
}

func TestKeysOutliveTheirStreams(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	r := &ring{keys: map[string]ed25519.PublicKey{}}
	k := newKeys(r, time.Millisecond)
	defer k.close()
	for range 2 {
		if err := k.hold("d", key); err != nil {
			t.Fatal(err)
		}
	}
	k.release([]string{"d"})
	time.Sleep(20 * time.Millisecond)
	if !r.has("d") {
		t.Error("the key went with the first of two streams")
	}
	k.release([]string{"d"})
	eventually(t, "the key is gone", func() bool { return !r.has("d") })

	k.life = time.Hour
	if err := k.hold("d", key); err != nil {
		t.Fatal(err)
	}
	k.release([]string{"d"})
	if !r.has("d") {
		t.Error("the key went with its stream")
	}
	if err := k.hold("d", key); err != nil || k.held["d"].timer != nil {
		t.Errorf("the timer still runs after the door came back: %v", err)
	}
	k.release([]string{"d"})
	for _, bad := range [][]byte{nil, key[:31]} {
		if k.hold("d", bad) == nil {
			t.Errorf("a key of %d bytes is taken", len(bad))
		}
	}
	if contextLife != 70*time.Second {
		t.Errorf("a context can be valid for %v", contextLife)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Name: "w", Endpoint: "e", Listen: "127.0.0.1:0", Doors: []string{"x:1"}, JoinToken: "t",
		Engine: newFakeEngine(t, "http://x"), Journal: &journal{}}
	for name, change := range map[string]func(*Config){
		"name": func(c *Config) { c.Name = "W_1" }, "endpoint": func(c *Config) { c.Endpoint = "" }, "door": func(c *Config) { c.Doors = nil },
		"token": func(c *Config) { c.JoinToken = "" }, "engine": func(c *Config) { c.Engine = nil },
		"everywhere": func(c *Config) { c.Listen = "0.0.0.0:0" }, "ip:port": func(c *Config) { c.Advertise = "host:1" },
		"listen": func(c *Config) { c.Listen = "127.0.0.1:99999" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
