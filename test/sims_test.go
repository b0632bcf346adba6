package test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// account is what a simulated engine says of one request, in its own words.
type account struct {
	ID        string `json:"id"`
	Prompt    int64  `json:"prompt_tokens"`
	Cached    int64  `json:"cached_tokens"`
	Generated int64  `json:"generated_tokens"`
	Running   bool   `json:"running"`
	Cut       bool   `json:"cut"`
	Status    int    `json:"status"`
	Rank      int    `json:"rank"`
	// Transferred: another engine computed the prompt.
	Transferred bool `json:"transferred"`
}

// simClients reach the engines at the addresses that their command lines name. Their sockets are in folders that only
// their shim and this user enter.
func (u *up) simClients(t testing.TB) []*http.Client {
	t.Helper()
	var out []*http.Client
	sims := u.role("sim")
	for _, p := range processesOf(u.dir) { // of workers beside it
		if len(p.args) > 1 && p.args[1] == "sim" && !slices.ContainsFunc(sims, func(o process) bool { return o.pid == p.pid }) {
			sims = append(sims, p)
		}
	}
	for _, p := range sims {
		listen := p.flag("listen")
		path, isUnix := strings.CutPrefix(listen, "unix:")
		network, address := "tcp", listen
		if isUnix {
			network, address = "unix", strings.TrimPrefix(path, "//")
		}
		out = append(out, &http.Client{Timeout: callPatience, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}})
	}
	if len(out) == 0 {
		t.Fatalf("there is no simulated engine among %v", descendants(u.cmd.Process.Pid))
	}
	return out
}

// accounts are those of all engines, by admission: one for each attempt that reached an engine.
func (u *up) accounts(t testing.TB) map[string][]account {
	t.Helper()
	all := map[string][]account{}
	for _, c := range u.simClients(t) {
		resp, err := c.Get("http://sim/sim/requests")
		if err != nil {
			t.Fatal(err)
		}
		var list []account
		err = json.NewDecoder(resp.Body).Decode(&list)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			all[a.ID] = append(all[a.ID], a)
		}
	}
	return all
}

// metricOfSims sums a counter over all engines.
func (u *up) metricOfSims(t testing.TB, name string) float64 {
	t.Helper()
	sum := 0.0
	for _, c := range u.simClients(t) {
		resp, err := c.Get("http://sim/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			if series, value, ok := strings.Cut(s.Text(), " "); ok && strings.HasPrefix(series, name) {
				v, _ := strconv.ParseFloat(value, 64)
				sum += v
			}
		}
		resp.Body.Close()
	}
	return sum
}
