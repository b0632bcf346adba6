package epp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
)

// TestOrderedFallback: the first worker named is dead, so the next one serves, and who served is told to the client's side and
// to the picker.
func TestOrderedFallback(t *testing.T) {
	dead, living := lab.two.addr, lab.one.addr
	lab.two.dies(t)
	for n := 0; ; n++ {
		if n == 50 {
			t.Fatalf("of %d requests none was to be tried at %s first", n, dead)
		}
		r := call{listener: "retrying", subset: list(dead, living), body: prompt(n)}.do(t)
		if r.status != http.StatusOK || r.got.Worker != living || r.got.Sum != sum(prompt(n)) || r.header.Get("X-Served") != living {
			t.Fatalf("not served by the one that lives: %v", r)
		}
		attempts := r.got.Header.Get("X-Envoy-Attempt-Count")
		if r.header.Get("X-Picked-Metadata") == dead+","+living {
			if attempts != "2" {
				t.Errorf("%s attempts: %v", attempts, r)
			}
			return
		}
	}
}

// TestServedIsReported: the picker moves a request to the worker that took it, and forgets it with its end. A picker that adds
// x-conformance-test-served-endpoint to answers, as that of the extension's own tests does, is taken at this word, too.
func TestServedIsReported(t *testing.T) {
	dead, living := lab.two.addr, lab.one.addr
	lab.two.dies(t)
	for n, moved := 0, false; !moved; n++ {
		if n == 50 {
			t.Fatalf("of %d requests none was to be tried at %s first", n, dead)
		}
		moved = held(t, "retrying", list(dead, living), func(resp *http.Response) bool {
			if got := resp.Header.Get("X-Served"); got != living {
				t.Fatalf("served by %q", got)
			}
			if said := resp.Header.Get("X-Conformance-Test-Served-Endpoint"); said != "" && said != living {
				t.Errorf("the picker was told of %q", said)
			}
			if lab.loads != nil && (lab.loads(living) != 1 || lab.loads(dead) != 0) {
				t.Errorf("the picker believes in %d requests at the one that serves, %d at the dead one", lab.loads(living), lab.loads(dead))
			}
			return strings.HasPrefix(resp.Header.Get("X-Picked-Metadata"), dead)
		})
		if lab.loads != nil {
			until(t, "the picker forgets the request", func() bool { return lab.loads(living) == 0 })
		}
	}
}

// held looks at an answer that is not whole yet.
func held[T any](t *testing.T, listener string, subset *structpb.Value, look func(*http.Response) T, header ...http.Header) T {
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
	found := look(resp)
	close(lab.hold(name))
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestClientLeaves: the request is forgotten with its stream.
func TestClientLeaves(t *testing.T) {
	if lab.loads == nil {
		t.Skip("this picker does not tell what it believes")
	}
	for _, http2 := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		resp := call{http2: http2, subset: list(lab.three.addr), path: pathHeld + "?name=never", body: prompt(1)}.begin(ctx, t)
		if n := lab.loads(lab.three.addr); n != 1 {
			t.Errorf("%d requests while it runs", n)
		}
		cancel()
		resp.Body.Close()
		until(t, "the picker forgets the request", func() bool { return lab.loads(lab.three.addr) == 0 })
	}
}

// TestOneIDTwice: two requests that run at once under one request id are two.
func TestOneIDTwice(t *testing.T) {
	id := http.Header{"X-Request-Id": {"11111111-1111-4111-8111-111111111111"}}
	held(t, "http", list(lab.one.addr), func(*http.Response) bool {
		r := call{subset: list(lab.six.addr), header: id, body: prompt(2)}.do(t)
		r.followed(t)
		if r.got.Worker != lab.six.addr || r.got.Sum != sum(prompt(2)) {
			t.Errorf("the second one was mixed up: %v", r)
		}
		return true
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
	if err := lab.relay.open(); err != nil {
		t.Fatal(err)
	}
	follows()
}
