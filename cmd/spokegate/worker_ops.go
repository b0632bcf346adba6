package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/worker"
)

// workerHealth answers a worker's /readyz: 200 when the door can send it requests.
type workerHealth struct {
	status  func() worker.Status
	journal func(*report)
	doors   []string // to join
}

func (h workerHealth) report() (r report) {
	st := h.status()
	why := ""
	if st.Reason != "" {
		why = ": " + st.Reason
	}
	r.say(st.State == "ready", "engine %s: %s%s, %d requests running", st.Engine, st.State, why, st.Running)
	for _, cause := range st.Degraded {
		r.note("degraded: %s", cause)
	}
	switch away := strings.Join(st.Away, "; "); {
	case len(st.Doors)+len(st.Away) == 0: // no address is known, of a name in DNS
		r.say(false, "doors: not joined to any of %s", strings.Join(h.doors, ", "))
	case len(st.Doors) == 0:
		r.say(false, "doors: not joined to %s", away)
	case !st.Settled: // a door that it does not know yet may have nobody else
		r.say(false, "doors: joined to %s, and not yet to %s", strings.Join(st.Doors, ", "), away)
	default:
		r.say(true, "doors: joined to %s", strings.Join(st.Doors, ", "))
		if away != "" {
			r.note("doors: not joined to %s", away)
		}
	}
	h.journal(&r)
	return r
}

// workerOps serves a worker's pages until ctx is done. Where it listens is written into DIR/run/NAME.ops, for the port may
// be any free one. Empty address: no pages.
func workerOps(ctx context.Context, address, file string, reg *prometheus.Registry, h workerHealth, log *slog.Logger, more ...page) error {
	if address == "" {
		return nil
	}
	lis, err := listen(address)
	if err != nil {
		return err
	}
	defer lis.Close()
	if err := writeAddress(file, lis.Addr().String()); err != nil {
		return err
	}
	log.Info("ops pages", "address", lis.Addr().String())
	server := newOps(reg, h.report, more...)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func writeAddress(file, address string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(address+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// runWithOps runs a worker to the end of its drain, and its pages for as long. Where the pages fail, the worker ends.
func runWithOps(ctx context.Context, work, pages func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() {
		err := pages(life)
		if err != nil {
			stop()
		}
		served <- err
	}()
	err := work(ctx)
	end()
	return errors.Join(err, <-served)
}
