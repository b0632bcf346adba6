package epp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
)

// TestOrderedFallback: the first worker named is dead, so the next one serves, and Envoy says so.
func TestOrderedFallback(t *testing.T) {
	deadFirst(t, func(dead, living string) bool {
		n := lab.newNumber()
		r := call{listener: "retrying", subset: list(dead, living), body: prompt(n)}.do(t)
		if r.status != http.StatusOK || r.got.Worker != living || r.got.Sum != sum(prompt(n)) || r.header.Get("X-Served") != living {
			t.Fatalf("not served by the one that lives: %v", r)
		}
		if r.header.Get("X-Picked-Metadata") != dead+","+living {
			return false
		}
		if attempts := r.got.Header.Get("X-Envoy-Attempt-Count"); attempts != "2" {
			t.Errorf("%s attempts: %v", attempts, r)
		}
		return true
	})
}

// TestServedIsReported: the picker moves a request to the worker that took it, and forgets it with its end. A picker that adds
// x-conformance-test-served-endpoint to answers, as that of the extension's own tests does, is taken at this word, too.
func TestServedIsReported(t *testing.T) {
	deadFirst(t, func(dead, living string) (moved bool) {
		held(t, "retrying", list(dead, living), func(resp *http.Response) {
			if got := resp.Header.Get("X-Served"); got != living {
				t.Fatalf("served by %q", got)
			}
			if said := resp.Header.Get("X-Conformance-Test-Served-Endpoint"); said != "" && said != living {
				t.Errorf("the picker was told of %q", said)
			}
			if lab.tell() {
				until(t, "the picker believes in one request at the one that serves, and in none at the dead one", func() bool {
					return lab.load(living) == 1 && lab.load(dead) <= 0
				})
			}
			moved = strings.HasPrefix(resp.Header.Get("X-Picked-Metadata"), dead)
		})
		if lab.tell() {
			until(t, "the picker forgets the request", func() bool { return lab.load(living) == 0 })
		}
		return moved
	})
}

// deadFirst has a worker die, and repeats ask until the dead one was named first. Where the picker notices too soon, the worker
// comes back and dies again.
func deadFirst(t *testing.T, ask func(dead, living string) bool) {
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		revive := lab.two.dies(t)
		for range 6 {
			if ask(lab.two.addr, lab.one.addr) {
				revive()
				return
			}
		}
		revive()
	}
	t.Error("no request was to be tried at the dead worker first")
}

// held looks at an answer that is not whole yet.
func held(t *testing.T, listener string, subset *structpb.Value, look func(*http.Response), header ...http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := lab.newNumber()
	name := fmt.Sprint(n)
	c := call{listener: listener, subset: subset, path: pathHeld + "?name=" + name, body: prompt(n)}
	for _, h := range header {
		c.header = h
	}
	resp := c.begin(ctx, t)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("not answered: %d", resp.StatusCode)
	}
	first := make([]byte, len("first"))
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	look(resp)
	close(lab.hold(name))
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
}

// TestClientLeaves: the request is forgotten with its stream.
func TestClientLeaves(t *testing.T) {
	if !lab.tell() {
		t.Skip("this picker does not tell what it believes")
	}
	for _, http2 := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		resp := call{http2: http2, subset: list(lab.three.addr), path: pathHeld + "?name=never", body: prompt(1)}.begin(ctx, t)
		until(t, "the picker knows that one runs", func() bool { return lab.load(lab.three.addr) == 1 })
		cancel()
		resp.Body.Close()
		until(t, "the picker forgets the request", func() bool { return lab.load(lab.three.addr) == 0 })
	}
}

// TestClientLeavesWhileItSends: what was held of its request is let go.
func TestClientLeavesWhileItSends(t *testing.T) {
	if !lab.tell() {
		t.Skip("this picker does not tell what it holds")
	}
	for _, http2 := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		body, send := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+lab.listeners["http"]+"/v1/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan error, 1)
		go func() {
			_, err := transport(t, http2).RoundTrip(req)
			gone <- err
		}()
		if _, err := send.Write(pattern(100_000)); err != nil {
			t.Fatal(err)
		}
		until(t, "the picker holds what was sent", func() bool { return lab.heldBytes() >= 100_000 })
		cancel()
		_ = send.CloseWithError(context.Canceled) // the client may wait for what it reads
		if err := <-gone; err == nil {
			t.Error("it was answered")
		}
		until(t, "the picker lets go", func() bool { return lab.heldBytes() == 0 })
	}
}

// TestOneIDTwice: two requests that run at once under one request id are two.
func TestOneIDTwice(t *testing.T) {
	id := http.Header{"X-Request-Id": {"11111111-1111-4111-8111-111111111111"}}
	held(t, "http", list(lab.one.addr), func(*http.Response) {
		r := call{subset: list(lab.six.addr), header: id, body: prompt(2)}.do(t)
		r.followed(t)
		if r.got.Worker != lab.six.addr || r.got.Sum != sum(prompt(2)) {
			t.Errorf("the second one was mixed up: %v", r)
		}
	}, id)
}

// TestPickerAway: FailOpen sends traffic to any worker of the pool, FailClose to none; with the picker back, both follow it again.
//
// Envoy must know that the picker is away before it asks, here by the protocol's health service: of a request whose body it has
// begun to send it could not give back what is gone, and so refuses it.
func TestPickerAway(t *testing.T) {
	follows := func() {
		t.Helper()
		for _, listener := range []string{"open", "closed"} {
			var r reply
			until(t, listener+" follows the picker", func() bool {
				r = call{listener: listener, subset: list(lab.three.addr), body: prompt(1)}.do(t)
				return r.status == http.StatusOK && r.header.Get("X-Picked-Metadata") != ""
			})
			r.followed(t)
			if r.got.Worker != lab.three.addr {
				t.Errorf("%s: %v", listener, r)
			}
		}
	}
	follows()
	lab.relay.cut()
	until(t, "FailOpen lets a request pass", func() bool {
		return call{listener: "open", body: prompt(1)}.do(t).status == http.StatusOK
	})
	for n, body := range [][]byte{nil, prompt(1), pattern(330_000)} {
		r := call{listener: "open", subset: list(lab.three.addr), body: body}.do(t)
		if r.status != http.StatusOK || r.got.Sum != sum(body) || r.header.Get("X-Picked-Metadata") != "" {
			t.Errorf("FailOpen, request %d: %v", n, r)
		}
		if r := (call{listener: "closed", subset: list(lab.three.addr), body: body}).do(t); r.status != http.StatusServiceUnavailable || r.header.Get("X-Worker") != "" {
			t.Errorf("FailClose, request %d: %v", n, r)
		}
	}
	until(t, "the picker's address is free", func() bool { return lab.relay.open() == nil })
	follows()
}
