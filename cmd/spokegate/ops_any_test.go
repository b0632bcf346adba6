package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/policy"
)

// TestOneEndpointIsEnoughForSome: /readyz/any is for who decides about the whole door.
func TestOneEndpointIsEnoughForSome(t *testing.T) {
	workers := fleet.New()
	if _, err := workers.Join(fleet.Worker{Name: "w", Endpoint: "a", Addr: "10.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	workers.Update("w", fleet.Ready)
	workers.Acked(map[string]uint64{"a": workers.View().Version})
	h := health{fleet: workers}
	for _, c := range []struct {
		endpoints  string
		every, any bool
		line       string
	}{
		{"a", true, true, "ok   endpoints: 1 of 1 have a worker"},
		{"a b", false, true, "note endpoint b: 0 workers can be picked"},
		{"b", false, false, "FAIL endpoints: 0 of 1 have a worker"},
		{"", false, false, ""}, // nobody was asked
	} {
		var endpoints []*policy.Endpoint
		for _, name := range strings.Fields(c.endpoints) {
			endpoints = append(endpoints, &policy.Endpoint{Name: name})
		}
		var every, any report
		h.endpointsOf(&every, endpoints, false)
		h.endpointsOf(&any, endpoints, true)
		if every.ready() != c.every || any.ready() != c.any {
			t.Errorf("%q: ready %v, any %v; want %v, %v", c.endpoints, every.ready(), any.ready(), c.every, c.any)
		}
		if c.line != "" && !slices.Contains(any.lines, c.line) {
			t.Errorf("%q: %q, want %q", c.endpoints, any.lines, c.line)
		}
	}
}

// TestWhoDoesNotReadAPage is not waited for.
func TestWhoDoesNotReadAPage(t *testing.T) {
	ended := make(chan struct{})
	ops := newOps(prometheus.NewRegistry(), func() report { return report{} }, page{"GET /endless", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})})
	if ops.ReadTimeout != pageAsked || ops.WriteTimeout != pageRead || ops.IdleTimeout != pageIdle {
		t.Errorf("%v, %v, %v", ops.ReadTimeout, ops.WriteTimeout, ops.IdleTimeout)
	}
	ops.WriteTimeout = 50 * time.Millisecond // not to wait for two minutes
	server := httptest.NewUnstartedServer(nil)
	server.Config = ops
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /endless HTTP/1.1\r\nHost: ops\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the page is still being written")
	}
}
