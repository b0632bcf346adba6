package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spokegate/spokegate/worker"
)

// sayEvery is how often a drain tells how far it is.
const sayEvery = time.Second

// controlSocket is where a worker takes orders of this machine's user.
func controlSocket(dir, name string) string { return filepath.Join(dir, "run", name+".sock") }

// control takes the order to drain, and tells who gave it how far it is until the worker has ended.
type control struct {
	status func() worker.Status
	drain  func()
	ended  <-chan struct{}
	log    *slog.Logger
}

// serve listens until the worker has ended. A path that is too long for a socket is told, and the worker runs without.
func (c *control) serve(path string) (stop func(), err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		c.log.Warn("no socket for orders: drain it with SIGTERM", "error", err)
		return func() {}, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drain", c.serveDrain)
	// An answer lasts as long as the drain; its few lines fit into the socket's buffer, also where nobody reads them.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis)
	}()
	return func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil { // the last line is on its way for so long
			_ = server.Close()
		}
		<-done
	}, nil
}

func (c *control) serveDrain(w http.ResponseWriter, r *http.Request) {
	c.log.Info("asked to drain")
	c.drain()
	rc := http.NewResponseController(w)
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for last := ""; ; {
		st := c.status()
		if now := fmt.Sprintf("%s, %d running", st.State, st.Running); now != last {
			last = now
			fmt.Fprintln(w, now)
			_ = rc.Flush()
		}
		select {
		case <-c.ended:
			fmt.Fprintln(w, "ended")
			return
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// runWorkerDrain asks a worker of this machine to drain and to end, and waits for it.
func runWorkerDrain(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("worker drain", flag.ContinueOnError)
	dir := f.String("dir", ".spokegate", "the worker's `folder`")
	var name []string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[:1], args[1:]
	}
	if err := parse(f, append(args, name...), "NAME"); err != nil {
		return err
	}
	return drainWorker(ctx, controlSocket(*dir, f.Arg(0)), func(line string) { fmt.Println(line) })
}

func drainWorker(ctx context.Context, socket string, say func(string)) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://worker/drain", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(q)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("no worker listens at %s: %w", socket, op.Err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	last := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		last = lines.Text()
		say(last)
	}
	if last != "ended" {
		return fmt.Errorf("the worker broke off at %q: see its log", last)
	}
	return nil
}
