package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet/join"
)

// servers are a door's listeners: towards Envoy, towards workers, towards operators. They are stopped in this order.
type servers struct{ list []listener }

// listener is one of them: where, and what serves there until it is stopped.
type listener struct {
	address string
	serve   func(net.Listener) error
	stop    func()
}

func (s *servers) envoySide(d envoy.Door, options []grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(options...)
	s.grpc("unix:"+d.DoorSocket, g)
	return g
}

// admissionSide is asked by the door's own Envoy about large bodies. It is stopped first, so that nothing is admitted whose end
// nobody would hear; checks that run then have a moment to end.
func (s *servers) admissionSide(d envoy.Door, server *http.Server) {
	serve := func(lis net.Listener) error {
		if err := server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	s.list = slices.Insert(s.list, 0, listener{"unix:" + d.AdmissionSocket(), serve, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}})
}

func (s *servers) pickerSide(d envoy.Door, p *epp.Server) {
	g := grpc.NewServer(d.ServerOptions()...)
	extprocv3.RegisterExternalProcessorServer(g, p)
	s.grpc("unix:"+d.PickerSocket, g)
}

func (s *servers) fleetSide(address string, j *join.Server, options ...grpc.ServerOption) {
	g := grpc.NewServer(options...)
	workerv1.RegisterFleetServer(g, j)
	s.grpc(address, g)
}

// opsSide writes into a file where it listens, for commands on this machine.
func (s *servers) opsSide(address, file string, reg *prometheus.Registry, pages []page, h health) {
	pages = append(pages, page{"GET /readyz/any", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.any().write(w) })})
	ops := newOps(reg, h.report, pages...)
	serve := func(lis net.Listener) error {
		if err := writeAddress(file, lis.Addr().String()); err != nil {
			return err
		}
		if err := ops.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	s.list = append(s.list, listener{address, serve, func() { _ = ops.Close() }})
}

// grpc adds a gRPC server. Calls that run when it is stopped have a moment to end; Envoy's streams last as long as Envoy does.
func (s *servers) grpc(address string, g *grpc.Server) {
	s.grpcUntil(address, g, func() {
		cut := time.AfterFunc(time.Second, g.Stop)
		defer cut.Stop()
		g.GracefulStop()
	})
}

// grpcUntil adds a gRPC server that stop ends.
func (s *servers) grpcUntil(address string, g *grpc.Server, stop func()) {
	serve := func(lis net.Listener) error {
		if err := g.Serve(lis); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			return err
		}
		return nil
	}
	s.list = append(s.list, listener{address, serve, stop})
}

// run serves on all listeners until ctx is done or one fails. Nothing is served before all of them are open.
func (s *servers) run(ctx context.Context) error {
	var open []net.Listener
	for _, l := range s.list {
		lis, err := listen(l.address)
		if err != nil {
			for _, lis := range open {
				_ = lis.Close()
			}
			return err
		}
		open = append(open, lis)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, l := range s.list {
		g.Go(func() error { return l.serve(open[i]) })
	}
	g.Go(func() error {
		<-ctx.Done()
		for _, l := range s.list {
			l.stop()
		}
		return nil
	})
	return g.Wait()
}

// listen opens host:port or unix:PATH; a socket is for this user only.
func listen(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		lis, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
		}
		return lis, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a killed door
		return nil, err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return lis, os.Chmod(path, 0o600)
}
