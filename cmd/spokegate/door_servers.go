package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
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

// servers are a door's listeners: towards Envoy, towards workers, towards operators.
type servers struct {
	log  *slog.Logger
	grpc []grpcListener
	http []httpListener
}

type grpcListener struct {
	address string
	server  *grpc.Server
}

type httpListener struct {
	address string
	server  *http.Server
}

func newServers(log *slog.Logger) *servers { return &servers{log: log} }

func (s *servers) envoySide(d envoy.Door) *grpc.Server {
	g := grpc.NewServer(d.ServerOptions()...)
	s.grpc = append(s.grpc, grpcListener{"unix:" + d.DoorSocket, g})
	return g
}

func (s *servers) pickerSide(d envoy.Door, p *epp.Server) {
	g := grpc.NewServer(d.ServerOptions()...)
	extprocv3.RegisterExternalProcessorServer(g, p)
	s.grpc = append(s.grpc, grpcListener{"unix:" + d.PickerSocket, g})
}

func (s *servers) fleetSide(address string, j *join.Server) {
	g := grpc.NewServer()
	workerv1.RegisterFleetServer(g, j)
	s.grpc = append(s.grpc, grpcListener{address, g})
}

func (s *servers) opsSide(address string, reg *prometheus.Registry, h health) {
	s.http = append(s.http, httpListener{address, newOps(reg, h.report)})
}

// run serves on all listeners until ctx is done or one fails.
func (s *servers) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, l := range s.grpc {
		lis, err := listen(l.address)
		if err != nil {
			return err
		}
		g.Go(func() error { return l.server.Serve(lis) })
	}
	for _, l := range s.http {
		lis, err := listen(l.address)
		if err != nil {
			return err
		}
		g.Go(func() error {
			if err := l.server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	return g.Wait()
}

// stop lets running calls of Envoy end for a moment; its streams last as long as Envoy does.
func (s *servers) stop() {
	for _, l := range s.http {
		_ = l.server.Close()
	}
	for _, l := range s.grpc {
		cut := time.AfterFunc(time.Second, l.server.Stop)
		l.server.GracefulStop()
		cut.Stop()
	}
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
