package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/fleet/join"
)

// TestNothingIsServedBeforeAllIsOpen: an address that is taken stops a door before anybody has talked to it.
func TestNothingIsServedBeforeAllIsOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	socket := filepath.Join(t.TempDir(), "fleet.sock")
	s, asked := &servers{}, make(chan struct{}, 1)
	serve := func(lis net.Listener) error {
		asked <- struct{}{}
		return http.ErrServerClosed
	}
	s.list = append(s.list, listener{"127.0.0.1:0", serve, func() {}})
	s.fleetSide("unix:"+socket, &join.Server{})
	s.grpc(taken.Addr().String(), grpc.NewServer())
	if err := s.run(context.Background()); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v", err)
	}
	if len(asked) != 0 {
		t.Error("the first was served")
	}
	if c, err := net.Dial("unix", socket); err == nil {
		c.Close()
		t.Error("the second is open still")
	}
}

// TestServersStopTogether: with ctx, or with the first that fails.
func TestServersStopTogether(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &servers{}
	s.fleetSide("127.0.0.1:0", &join.Server{})
	s.list = append(s.list, listener{"127.0.0.1:0", func(net.Listener) error { cancel(); return nil }, func() {}})
	if err := s.run(ctx); err != nil {
		t.Errorf("got %v", err)
	}
	failing := &servers{}
	failing.fleetSide("127.0.0.1:0", &join.Server{})
	failing.list = append(failing.list, listener{"127.0.0.1:0", func(net.Listener) error { return net.ErrClosed }, func() {}})
	if err := failing.run(context.Background()); err != net.ErrClosed {
		t.Errorf("got %v", err)
	}
}
