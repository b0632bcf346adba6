package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// stopGrace is how long answers may go on after the end is asked for. Who wants to drain does so before.
const stopGrace = time.Second

// Run serves until ctx ends. A stale socket at the address is removed; anything else there is an error.
func Run(ctx context.Context, cfg Config) error {
	s, err := New(cfg)
	if err != nil {
		return err
	}
	for rank, c := range s.caches {
		if cfg.KVEvents == "" {
			break
		}
		if c.events, err = newKVEvents(ctx, ofRank(cfg.KVEvents, rank), ofRank(cfg.KVReplay, rank), rank, s.cfg.Log); err != nil {
			return err
		}
	}
	l, err := listen(cfg.Listen)
	if err != nil {
		return err
	}
	s.cfg.Log.Info("simulated engine listens", "address", cfg.Listen, "models", s.cfg.Models)
	return s.serve(ctx, l)
}

// ofRank is the address of one rank's sockets.
func ofRank(address string, rank int) string {
	if address == "" || rank == 0 {
		return address
	}
	return fmt.Sprintf("%s_dp%d", address, rank)
}

func (s *Sim) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	path = strings.TrimPrefix(path, "//")
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}
