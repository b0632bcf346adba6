package epp

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/spokegate/spokegate/policy"
)

// bringing is a request of headers alone, with these beside.
func bringing(fields ...string) *extprocv3.ProcessingRequest {
	r := reqHeaders(true, nil)
	h := r.GetRequestHeaders().GetHeaders()
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	return r
}

// TestSheddableObjectivesAreRefusedFirst, and nothing is refused any longer than there is a reason for.
func TestSheddableObjectivesAreRefusedFirst(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	p.router("large").SetRouting(policy.Routing{Busy: policy.Busy{Queue: 10}})
	s := server(p)
	s.Sheddable = []string{"batch"}
	var running []*stream
	ask := func(fields ...string) string {
		st := &stream{server: s, traced: t.Context()}
		running = append(running, st)
		got, _, _ := strings.Cut(script(say(st, bringing(fields...))), " destination")
		return strings.TrimSpace(got)
	}
	for range 9 {
		if got := ask(); got != "headers" {
			t.Fatalf("while there is room: %s", got)
		}
	}
	for _, c := range []struct{ header, want string }{
		{"x-gateway-inference-objective=batch", "immediate 429 picker_shed"},
		{"x-llm-d-inference-objective=batch", "immediate 429 picker_shed"},
		{"x-gateway-inference-fairness-id=batch", "headers"}, // the tenth
		{"x-gateway-inference-objective=chat", "immediate 503 picker_overloaded"},
		{"x-gateway-inference-objective=batch", "immediate 429 picker_shed"},
	} {
		if got := ask(c.header); got != c.want {
			t.Errorf("%s: %s, want %s", c.header, got, c.want)
		}
	}
	for _, st := range running {
		st.end()
	}
	if got := ask("x-gateway-inference-objective=batch"); got != "headers" {
		t.Errorf("when all have ended: %s", got)
	}
	running[len(running)-1].end()
}

// TestSessionsStay where they were, though by load alone requests would take turns.
func TestSessionsStay(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	p.router("large").SetRouting(policy.Routing{AffinityWeight: 1})
	places := map[string]map[string]bool{}
	for turn := range 4 {
		for i, session := range []string{"a", "b", "", ""} {
			st := opened(t, p)
			asks := bringing("x-session-id=" + session)
			asks.GetRequestHeaders().EndOfStream = false
			_, body := chat(t, strings.Repeat(fmt.Sprint(turn, "/", i, ". "), 200)) // nobody has anything of it
			first, _, _ := strings.Cut(script(say(st, asks, reqBody(body, true))), ",")
			if places[session] == nil {
				places[session] = map[string]bool{}
			}
			places[session][first] = true
			st.end()
		}
	}
	if len(places["a"]) != 1 || len(places["b"]) != 1 || len(places[""]) != 2 {
		t.Errorf("sessions were at %v", places)
	}
}

// TestTargetsOfClientsAreTakenAway: they would have a worker's sidecar ask an address that the client chose.
func TestTargetsOfClientsAreTakenAway(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	for fields, want := range map[string]string{
		"":                               "",
		"x-prefiller-host-port=10.9.9.9": "x-prefiller-host-port",
		"x-prefiller-host-port=a x-data-parallel-host-port=b x-slo-ttft-ms=9": "x-prefiller-host-port x-data-parallel-host-port",
	} {
		out := say(opened(t, p), bringing(strings.Fields(fields)...))
		if got := strings.Join(out[0].GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(), " "); got != want {
			t.Errorf("%s: taken away are %q", fields, got)
		}
	}
}
