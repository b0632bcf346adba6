package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// workerAddrs asks Envoy which workers an endpoint has.
func (u *up) workerAddrs(t testing.TB, endpoint string) []string {
	t.Helper()
	resp, err := http.Get("http://" + u.admin + "/clusters?format=json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct {
		Clusters []struct {
			Name  string
			Hosts []struct {
				Address struct {
					Socket struct {
						Address string
						Port    int `json:"port_value"`
					} `json:"socket_address"`
				}
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range page.Clusters {
		if strings.HasSuffix(c.Name, "/"+endpoint) {
			for _, h := range c.Hosts {
				out = append(out, fmt.Sprintf("%s:%d", h.Address.Socket.Address, h.Address.Socket.Port))
			}
		}
	}
	return out
}

// sendTo calls a worker without the door.
func sendTo(t *testing.T, addr string, c call) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	r, err := sendHTTP1(ctx, addr, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refusedByWorker(t *testing.T, r reply, statuses ...int) {
	t.Helper()
	if !slices.Contains(statuses, r.status) {
		t.Fatalf("want one of %v, got %v", statuses, r)
	}
	if r.header.Get("X-Spokegate-Refused") == "" || !json.Valid(r.body) {
		t.Errorf("want JSON and the reason in x-spokegate-refused, got %v", r)
	}
}

// closedToStrangers calls a shim as nobody does whom a door has let through.
func closedToStrangers(t *testing.T, u *up, shim string) {
	body := operations[0].body
	for name, c := range map[string]call{
		"no context":      post(u.key("main"), "/v1/chat/completions", body),
		"forged":          post(u.key("main"), "/v1/chat/completions", body, field{"x-spokegate-context", "forged"}),
		"unsigned":        post("", "/v1/chat/completions", body, field{"x-spokegate-context", "eyJhbGciOiJub25lIn0.eyJhdWQiOlsic2ltIl0sImp0aSI6IngiLCJleHAiOjQxMDI0NDQ4MDB9."}),
		"models":          get(u.key("main"), "/v1/models"),
		"engine's health": get("", "/health"),
		"engine's page":   get("", "/sim/requests"),
		"engine's counts": get("", "/metrics"),
	} {
		t.Run(name, func(t *testing.T) { refusedByWorker(t, sendTo(t, shim, c), 401, 403, 404, 405) })
	}
}

// TestSideDoors calls a worker's shim directly: without a context, with a forged one, and again with a good one.
func TestSideDoors(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "side-door", upOptions{policy: simPolicy(), rates: ratesFile(t), workers: 1})
	shim := once(t, "workers of sim", u.workerAddrs(t, "sim"))
	closedToStrangers(t, u, shim)
	body := operations[0].body
	// A second worker of the same endpoint is the tests' own, and so sees a context that the shim has not seen.
	spy, err := joinTap(u, "spy", "sim", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer spy.leave()
	seen := spyOn(t, u, spy, "spy")
	token := field{"x-spokegate-context", seen.header.Get("X-Spokegate-Context")}
	id := field{"x-request-id", seen.header.Get("X-Request-Id")}
	if !strings.HasPrefix(token.value, "m.") {
		t.Errorf("two workers that share secrets with the door, and the context is %s", token.value)
	}
	tampered := token
	tampered.value = tampered.value[:len(tampered.value)-4] + "AAAA"
	refusedByWorker(t, sendTo(t, shim, post("", "/v1/chat/completions", body, tampered, id)), 401)
	own := string(seen.body)
	if r := sendTo(t, shim, post("", "/v1/chat/completions", own, token, id)); r.status != http.StatusOK {
		t.Fatalf("the first use of a good context at this worker: want 200, got %v", r)
	}
	refusedByWorker(t, sendTo(t, shim, post("", "/v1/chat/completions", own, token, id)), 403)
	// Nor does one serve another body, even of the same model.
	seen = spyOn(t, u, spy, "other")
	token, id = field{"x-spokegate-context", seen.header.Get("X-Spokegate-Context")}, field{"x-request-id", seen.header.Get("X-Request-Id")}
	other := strings.Replace(string(seen.body), `"max_tokens":1`, `"max_tokens":9`, 1)
	r := sendTo(t, shim, post("", "/v1/chat/completions", other, token, id))
	refusedByWorker(t, r, 403)
	if reason := r.header.Get("X-Spokegate-Refused"); reason != "context_body" {
		t.Errorf("refused as %s", reason)
	}
	if got := u.metricOfSims(t, "spokegate_sim_requests_total"); got < 1 {
		t.Errorf("the engine says it served %v requests", got)
	}
}

// spyOn sends requests, of a name of their own, until the spy gets one.
func spyOn(t *testing.T, u *up, spy *tap, name string) caught {
	t.Helper()
	var seen caught
	n := 0
	eventually(t, factPatience, func() error {
		n++
		label := fmt.Sprintf("case/%s-%d", name, n)
		u.ok(t, post(u.key("main"), "/v1/chat/completions", fmt.Sprintf(`{"model":"sim-small","max_tokens":1,"messages":[{"role":"user","content":"%d %s"}]}`,
			n, strings.Repeat(label, 100)), field{caseHeader, label}))
		got := spy.got(label)
		if len(got) == 0 {
			return fmt.Errorf("none of %d requests came to the second worker", n)
		}
		seen = got[0]
		return nil
	})
	if seen.invalid != nil {
		t.Fatal(seen.invalid)
	}
	return seen
}

// TestJoinNeedsToken wants that nobody becomes a worker without the spoke's token.
func TestJoinNeedsToken(t *testing.T) {
	t.Parallel()
	u := tapped(t, "admission")
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	for _, token := range []string{"", "wrong", strings.Repeat("0", 64)} {
		stranger := &tap{name: "stranger", endpoint: "tap", addr: "127.0.0.1:9", conn: u.tap.conn, verifier: u.tap.verifier}
		if err := stranger.join(ctx, token); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
			t.Errorf("token %q: want Unauthenticated, got %v", token, err)
		}
	}
}
