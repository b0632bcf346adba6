package extauthz

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spokegate/spokegate/router"
)

// Bodies that unfold to far more than was sent are in memory a few at a time; whoever sends ordinary ones does not wait for them.
func TestBombsWaitForEachOther(t *testing.T) {
	g := newGate(t)
	var room atomic.Bool
	early := 0
	g.Picker = pickerFunc(func() (router.Choice, error) {
		if !room.Load() {
			early++
		}
		return router.Choice{Addrs: []string{"10.0.0.1:1"}}, nil
	})
	n := 0
	ask := func(text string) (*authv3.CheckResponse, error) {
		n++
		return g.ask(t, t.Context(), set("x-request-id", fmt.Sprint("r-", n)), set("authorization", "Bearer "+g.boundless), set("content-encoding", "gzip"),
			body(string(encoded(t, "gzip", []byte(text)))))
	}
	const ordinary = `{"model":"cheap","messages":[]}`
	for range largePlaces {
		g.large <- struct{}{}
	}
	if resp, err := ask(ordinary); err != nil || resp.GetOkResponse() == nil {
		t.Fatal("an ordinary body does not pass", resp, err)
	}
	early = 0

	admitted := make(chan bool)
	go func() {
		resp, err := ask(ordinary + strings.Repeat(" ", fairLeast))
		admitted <- err == nil && resp.GetOkResponse() != nil
	}()
	select {
	case <-admitted:
		t.Fatal("a bomb did not wait")
	default:
	}
	room.Store(true)
	<-g.large
	if !<-admitted {
		t.Fatal("a large body does not pass, though there is room")
	}
	if early != 0 {
		t.Error("a bomb was judged before there was room")
	}
	if len(g.large) != largePlaces-1 {
		t.Errorf("%d places are taken, want %d", len(g.large), largePlaces-1)
	}

	// What is too large in the end gives its place back too.
	resp, err := ask(ordinary + strings.Repeat(" ", int(g.BodyLimit)))
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 413, "body_too_large")
	if len(g.large) != largePlaces-1 {
		t.Errorf("%d places are taken, want %d", len(g.large), largePlaces-1)
	}
}

// One that has nowhere to be in memory is refused when Envoy gives up, and takes no place later.
func TestBombsDoNotWaitForever(t *testing.T) {
	g := newGate(t)
	for range largePlaces {
		g.large <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	resp, err := g.ask(t, ctx, set("content-encoding", "gzip"), body(string(encoded(t, "gzip", []byte(strings.Repeat(" ", fairLeast+1))))))
	if err == nil {
		t.Error("answered:", resp)
	}
	if len(g.large) != largePlaces {
		t.Errorf("%d places are taken, want %d", len(g.large), largePlaces)
	}
}
