package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func floodSize() int { return lab.scaled(1000) }

const (
	// What the flood may cost, in bytes: Envoy holds up to 64 KiB of a body before the key is checked, and what a
	// connection takes; the door sees headers only.
	floodEnvoy = 200 << 20
	floodDoor  = 100 << 20
)

// TestFlood starts a thousand uploads of 20 MB at once, without a key: all are refused, and little is spent on them.
func TestFlood(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]string{"announced": "content-length: 20000000", "chunked": "transfer-encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := ownUp(t, "flood-"+name, upOptions{policy: simPolicy(), workers: 1})
			u.ok(t, get(u.key("main"), "/v1/models"))
			envoy, door := u.the(t, "envoy"), u.the(t, "door")
			envoyBefore, doorBefore := envoy.memory(t), door.memory(t)
			flood(t, u, length, func() {
				if grown := envoy.memory(t) - envoyBefore; grown > floodEnvoy {
					t.Errorf("Envoy grew by %d MiB while the uploads were open", grown>>20)
				} else {
					t.Logf("Envoy grew by %d MiB", grown>>20)
				}
				if grown := door.memory(t) - doorBefore; grown > floodDoor {
					t.Errorf("the door grew by %d MiB while the uploads were open", grown>>20)
				} else {
					t.Logf("the door grew by %d MiB", grown>>20)
				}
			})
			// All of it came from this address, from which a right key is served as ever.
			u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken))
			if page := u.page(t, "/metrics"); !strings.Contains(page, `spokegate_credentials_slowed_total{answer="held"}`) {
				t.Errorf("nothing was slowed: %s", page)
			}
		})
	}
}

// flood holds all connections open until every one has its answer, then measures. Each has something to say at once: Envoy ends
// a connection that is silent for ten seconds, which a thousand dials may take.
func flood(t *testing.T, u *up, length string, measure func()) {
	t.Helper()
	answers, conns := make([]error, floodSize()), make([]io.Closer, floodSize())
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			c, err := dial(t.Context(), u.listen)
			if err != nil {
				answers[i] = err
				return
			}
			conns[i] = c
			answers[i] = upload(c, length)
		})
	}
	all.Wait()
	measure()
	wrong := 0
	for _, err := range answers {
		if err != nil {
			if wrong++; wrong < 5 {
				t.Error(err)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d uploads were not refused in order", wrong, floodSize())
	}
}

// upload sends headers and the beginning of a body, then a little more at a time until the answer comes.
func upload(c net.Conn, length string) error {
	head := "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" + length + "\r\n\r\n"
	part := strings.Repeat("a", 4096)
	if strings.Contains(length, "chunked") {
		part = "1000\r\n" + part + "\r\n"
	}
	if _, err := io.WriteString(c, head+part); err != nil {
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := io.WriteString(c, part); err != nil {
					return
				}
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	r, err := whole(resp)
	if err != nil {
		return err
	}
	switch r.status {
	case http.StatusUnauthorized:
		return checkRefusal(r, "", "invalid_api_key")
	case http.StatusTooManyRequests: // so many from one address
		return checkRefusal(r, "", "too_many_failed_keys")
	}
	return fmt.Errorf("want 401 or 429, got %v", r)
}

// TestSlowHeaders keeps headers coming, a byte at a time: the connection must be ended, not wait for ever.
func TestSlowHeaders(t *testing.T) {
	t.Parallel()
	u := tapped(t, "admission")
	conn, err := dial(t.Context(), u.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{}) // it is Envoy that must end it
	if _, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow: "); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(conn)
		ended <- err
	}()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(factPatience); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
			_, _ = io.WriteString(conn, "a")
		case <-late:
			t.Fatalf("the connection is open after %v of unfinished headers", factPatience)
		}
	}
}
