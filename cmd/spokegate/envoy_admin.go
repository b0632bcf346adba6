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
	"strings"
	"time"

	"github.com/spokegate/spokegate/envoy"
)

// envoyAdmin asks Envoy's admin page.
type envoyAdmin struct {
	base   string
	client http.Client
}

// adminPatience is how long Envoy may take for what it has at hand.
const adminPatience = 5 * time.Second

// newEnvoyAdmin is for ip:port, or the path of a Unix socket; an answer may take as long as patience. Empty: nil, for there is no
// such page.
func newEnvoyAdmin(address string, patience time.Duration) *envoyAdmin {
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
	return &envoyAdmin{base: base, client: http.Client{Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (a *envoyAdmin) close() { a.client.CloseIdleConnections() }

// open asks for a page. Whoever calls it closes the body.
func (a *envoyAdmin) open(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	return a.client.Do(req)
}

// ask gives what a page says, and its status.
func (a *envoyAdmin) ask(ctx context.Context, method, path string) (status int, body []byte, err error) {
	resp, err := a.open(ctx, method, path)
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
