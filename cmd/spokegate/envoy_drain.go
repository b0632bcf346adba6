package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spokegate/spokegate/envoy"
)

// drainPoll is how often a draining Envoy is asked what runs.
const drainPoll = 200 * time.Millisecond

// empty makes Envoy turn clients away, and returns when nothing runs there any more, or has run for too long, or ctx is done.
// First health says no, and all that comes is still served: a balancer sees it late. Each answer from then on tells its client
// to leave the connection (HTTP/1.1 by its header, HTTP/2 by GOAWAY). Then those are left on which nothing is asked.
func (e *envoyRunFlags) empty(ctx context.Context, admin *envoyAdmin, log *slog.Logger) {
	defer admin.close()
	log.Info("draining", "delay", e.delay.String(), "most", e.drain.String())
	ctx, cancel := context.WithTimeout(ctx, e.delay+e.drain)
	defer cancel()
	admin.insist(ctx, "/healthcheck/fail", log)
	if !pause(ctx, e.delay) {
		return
	}
	admin.insist(ctx, "/drain_listeners?graceful&skip_exit", log)
	if err := writeDrainFile(e.door.envoy.DrainFile, "1"); err != nil {
		log.Warn("idle connections will be closed without a word", "error", err)
	}
	var said clientele
	begun, quiet := time.Now(), time.Time{}
	for {
		now, err := admin.clientele(ctx)
		switch {
		case err != nil || now.running > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = time.Now()
		}
		left := now.connected == 0 || time.Since(begun) > e.idle
		if left && !quiet.IsZero() && time.Since(quiet) >= e.settle { // what Envoy has to tell the door of the last request is told
			log.Info("nothing runs any more", "connections", now.connected)
			return
		}
		if err == nil && now.running != said.running {
			said = now
			log.Info("requests run", "running", now.running, "connections", now.connected)
		}
		if !pause(ctx, drainPoll) {
			log.Warn("what runs still is cut", "running", said.running)
			return
		}
	}
}

// writeDrainFile puts a file in its place that Envoy.DrainFile is.
func writeDrainFile(path, pressure string) error {
	if err := os.WriteFile(path+".new", []byte(pressure+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// envoyAdmin asks Envoy's admin page.
type envoyAdmin struct {
	base   string
	client http.Client
}

// newEnvoyAdmin is for ip:port, or the path of a Unix socket. Empty: nil, for there is no such page.
func newEnvoyAdmin(address string) *envoyAdmin {
	if address == "" {
		return nil
	}
	transport := &http.Transport{} // no proxy of the environment: it is this machine's
	base := "http://" + address
	if strings.HasPrefix(address, "/") {
		base = "http://envoy"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}
	}
	return &envoyAdmin{base: base, client: http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

func (a *envoyAdmin) close() { a.client.CloseIdleConnections() }

// ask gives what a page says, and its status.
func (a *envoyAdmin) ask(ctx context.Context, method, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, body, err
}

// insist posts until Envoy has done it or ctx is done: one that has just started does not listen yet.
func (a *envoyAdmin) insist(ctx context.Context, path string, log *slog.Logger) {
	said := false
	for {
		status, _, err := a.ask(ctx, http.MethodPost, path)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		if err == nil {
			return
		}
		if !said {
			log.Warn("Envoy's admin page does not do what it is asked", "path", path, "error", err)
			said = true
		}
		if !pause(ctx, drainPoll) {
			return
		}
	}
}

// clientele is what an Envoy has of its clients.
type clientele struct{ running, connected int }

func (a *envoyAdmin) clientele(ctx context.Context) (c clientele, err error) {
	names := strings.ReplaceAll("^("+envoy.RunningStat+"|"+envoy.ConnectedStat+")$", ".", `\.`)
	status, body, err := a.ask(ctx, http.MethodGet, "/stats?format=json&filter="+url.QueryEscape(names))
	if err != nil {
		return c, err
	}
	var page struct {
		Stats []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK {
		return c, errors.Join(fmt.Errorf("stats: status %d", status), err)
	}
	for _, s := range page.Stats { // before there is a listener there are none
		switch s.Name {
		case envoy.RunningStat:
			c.running = s.Value
		case envoy.ConnectedStat:
			c.connected = s.Value
		}
	}
	return c, nil
}

// readiness asks whether Envoy takes clients: "" when it does, else its word for what it does instead.
func (a *envoyAdmin) readiness(ctx context.Context) (word string, err error) {
	status, body, err := a.ask(ctx, http.MethodGet, "/ready")
	if err != nil || status == http.StatusOK {
		return "", err
	}
	return strings.ToLower(strings.TrimSpace(string(body))), nil
}
