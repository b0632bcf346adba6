package epp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Headers that a picker alone may send.
const (
	rankHeader      = "X-Data-Parallel-Rank"
	prefillerHeader = "X-Prefiller-Host-Port"
	sidecarHeader   = "X-Data-Parallel-Host-Port"
)

// longPrompt is a body whose prompt is worth being computed apart, another for each n.
func longPrompt(n int) []byte {
	return fmt.Appendf(nil, `{"model":"m","prompt":"%d: %s"}`, n, strings.Repeat("and on it goes ", 1000))
}

// TestClientsPlayNoPart: what only a picker may say never comes from a client, in whatever way the gateway hands over bodies.
func TestClientsPlayNoPart(t *testing.T) {
	forged := http.Header{rankHeader: {"1"}, prefillerHeader: {"10.9.9.9:1", "10.9.9.8:1"}, sidecarHeader: {"10.9.9.9:1"}}
	for _, listener := range []string{"http", "h2c", "buffered", "streamed"} {
		for _, c := range []call{{body: prompt(1)}, {method: "GET"}, {body: prompt(1), trailer: http.Header{"X-Checksum": {"abc"}}}} {
			c.listener, c.header = listener, forged
			r := c.do(t)
			r.followed(t)
			for name := range forged {
				if got, arrived := r.got.Header[name]; arrived {
					t.Errorf("%s: %s arrived: %q", listener, name, got)
				}
			}
		}
	}
}

// TestWorkersAreToldTheirParts: which data-parallel rank is to serve, and who computes a long prompt for it. All of the list are
// told the same, so that it holds for whoever serves.
func TestWorkersAreToldTheirParts(t *testing.T) {
	if lab.pickers.parts == "" {
		t.Skip("the workers of a picker that is not ours have no parts")
	}
	forged := http.Header{rankHeader: {"1"}, prefillerHeader: {"10.9.9.9:1"}}
	said := func(body []byte) (r reply, rank, prefiller string) {
		r = call{listener: "parts", body: body, header: forged}.do(t)
		if r.status != http.StatusOK {
			t.Fatalf("%v", r)
		}
		if w := r.got.Worker; w != lab.one.addr && w != lab.two.addr {
			t.Errorf("answered by one that only computes prompts: %v", r)
		}
		ranks, prefillers := r.got.Header[rankHeader], r.got.Header[prefillerHeader]
		if len(ranks) != 1 || ranks[0] != "0" && ranks[0] != "1" || len(prefillers) > 1 {
			t.Fatalf("the worker is told %q, %q", ranks, prefillers)
		}
		return r, ranks[0], strings.Join(prefillers, "")
	}
	n := 0
	until(t, "all of the pool are picked", func() bool {
		n++
		r, _, prefiller := said(longPrompt(n))
		return prefiller == lab.three.addr && strings.Contains(r.header.Get("X-Picked-Metadata"), ",")
	})
	places := map[string]int{} // where prompts are
	for i := range 8 {
		r, rank, prefiller := said(longPrompt(100 + i))
		r.followed(t)
		if prefiller != lab.three.addr {
			t.Errorf("prefill by %q, want %s", prefiller, lab.three.addr)
		}
		places[r.got.Worker+"="+rank] = 100 + i
	}
	if len(places) != 4 {
		t.Errorf("8 prompts are at %v of 4 ranks", places)
	}
	for place, n := range places {
		if r, rank, prefiller := said(longPrompt(n)); r.got.Worker+"="+rank != place || prefiller != "" {
			t.Errorf("what was at %s goes on at %s=%s, prefill by %q", place, r.got.Worker, rank, prefiller)
		}
	}
	revive := lab.one.dies(t)
	defer revive()
	for _, want := range []string{"0", "1"} {
		r, rank, _ := said(longPrompt(places[lab.one.addr+"="+want]))
		if first, _, _ := strings.Cut(r.header.Get("X-Picked-Metadata"), ","); r.got.Worker != lab.two.addr || first == lab.one.addr && rank != want {
			t.Errorf("in place of rank %s of one that is dead: rank %s, %v", want, rank, r)
		}
	}
}
