package test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a client might send to steer tracing: a trace of its own that wants to be sampled.
const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientParent = "00-" + clientTrace + "-b7ad6b7169203331-01"
)

var steering = []field{
	{"traceparent", clientParent}, {"tracestate", "evil=1"}, {"baggage", "evil=1"}, {"x-client-trace-id", "evil"}, {"x-envoy-force-trace", "true"},
}

// secretPrompt must not be in any log or span.
const secretPrompt = "the-prompt-that-nobody-logs"

const tracedStream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n" +
	"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n" + "data: [DONE]\n\n"

// tracedCall is a request with everything in it that should not come out again.
func tracedCall(u *up, name string) call {
	body := `{"model":"cheap","stream":true,"messages":[{"role":"user","content":"` + secretPrompt + `"}]}`
	c := post(u.key("main"), "/v1/chat/completions?api_key="+u.key("main"), body, field{caseHeader, casePrefix + name})
	c.fields = append(c.fields, steering...)
	return c
}

// traced is an installation that sends its spans to c.
func traced(t *testing.T, c *collector, picker, percent string) *up {
	t.Helper()
	lab.needEnvoy(t)
	u, err := startUp("traced-"+picker+"-"+percent, upOptions{
		policy: casesPolicy("[{name: pool}]", "pool"), picker: picker, engine: startEngine("cheap", "dear"),
		more: []string{"-otlp", c.addr, "-trace-percent", percent, "-log-level", "debug"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.engine.server.Close)
	return u
}

// stopped ends an installation, which sends what is left of its spans, after it looked for the prompt in its logs.
func stopped(t *testing.T, u *up) {
	t.Helper()
	logs, _ := filepath.Glob(filepath.Join(u.dir, "log", "*.log"))
	for _, path := range logs {
		if data, _ := os.ReadFile(path); bytes.Contains(data, []byte(secretPrompt)) {
			t.Errorf("%s holds the prompt", path)
		}
	}
	if err := u.stop(); err != nil {
		t.Error(err)
	}
}

func TestOneTraceOverAllParts(t *testing.T) {
	t.Parallel()
	for _, picker := range pickers {
		t.Run(picker, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			u := traced(t, c, picker, "100")
			const name = casePrefix + "traced"
			u.engine.plays(name, script{status: 200, chunks: []string{tracedStream}})
			r := u.ok(t, tracedCall(u, "traced"))
			u.ledger.usage(t, r.admission())
			u.ledger.served(t, r.admission())
			bad := tracedCall(u, "traced")
			bad.body = []byte(`{"model":"none-such","messages":["` + secretPrompt + `"]}`)
			refused := u.do(t, bad)

			wanted := []string{"spokegate-envoy/request", "spokegate-door/admission", "spokegate-door/pick", "spokegate-worker/worker"}
			var spans map[string][]span
			eventually(t, factPatience, func() error {
				spans = c.of(r.admission())
				for _, w := range wanted {
					if len(spans[w]) != 1 {
						return fmt.Errorf("%d spans %s among %v", len(spans[w]), w, slices.Sorted(maps.Keys(spans)))
					}
				}
				if len(c.of(refused.admission())["spokegate-door/admission"]) == 0 {
					return fmt.Errorf("no span of the refusal")
				}
				return nil
			})
			request, admission, pick, work := spans[wanted[0]][0], spans[wanted[1]][0], spans[wanted[2]][0], spans[wanted[3]][0]
			for _, s := range []span{admission, pick, work} {
				if s.trace != request.trace {
					t.Errorf("%s is in trace %s, the request in %s", s.name, s.trace, request.trace)
				}
			}
			if request.trace == clientTrace || request.parent != "" || !slices.Equal(admission.linked, []string{clientTrace}) {
				t.Errorf("the client's trace should be linked and nothing else: request %+v, admission %+v", request, admission)
			}
			if !isEnvoys(spans, admission.parent) || !isEnvoys(spans, work.parent) ||
				pick.parent != admission.id && (picker == pickers[0] || !isEnvoys(spans, pick.parent)) {
				t.Errorf("parents: admission %s, pick %s (admission is %s), worker %s", admission.parent, pick.parent, admission.id, work.parent)
			}
			heard := u.engine.got(name)
			if tp := heard[0].header.Get("Traceparent"); tp != "00-"+work.trace+"-"+work.id+"-01" || heard[0].header.Get("Tracestate") != "" {
				t.Errorf("the engine heard traceparent %q, tracestate %q; the worker's span is %s", tp, heard[0].header.Get("Tracestate"), work.id)
			}
			carries(t, admission, map[string]string{"gen_ai.request.model": "cheap", "gen_ai.operation.name": "chat", "spokegate.team": "t1",
				"spokegate.key": "main", "spokegate.endpoint": "pool", "spokegate.decision": "admitted"})
			carries(t, pick, map[string]string{"spokegate.endpoint": "pool", "spokegate.workers": "1"})
			carries(t, work, map[string]string{"gen_ai.request.model": "cheap", "gen_ai.operation.name": "chat", "spokegate.team": "t1",
				"spokegate.admission": r.admission(), "spokegate.endpoint": "pool", "spokegate.outcome": "complete",
				"gen_ai.usage.input_tokens": "7", "gen_ai.usage.output_tokens": "1", "spokegate.worker": "worker-1"})
			if !slices.Equal(work.events, []string{"first_byte"}) || work.eventAt < work.began || work.eventAt > work.ended {
				t.Errorf("the worker's events: %v at %d of %d to %d", work.events, work.eventAt, work.began, work.ended)
			}
			carries(t, request, map[string]string{"http.url": "/v1/chat/completions", "spokegate.admission": r.admission()})
			carries(t, c.of(refused.admission())["spokegate-door/admission"][0], map[string]string{"spokegate.decision": "model_not_found"})

			tracedLarge(t, c, u)
			stopped(t, u)
			for _, secret := range []string{u.key("main"), secretPrompt, "none-such"} {
				if strings.Contains(c.said(), secret) {
					t.Errorf("the spans hold %q", secret)
				}
			}
		})
	}
}

// isEnvoys says that a span with this id is among those of Envoy.
func isEnvoys(spans map[string][]span, id string) bool {
	for where, list := range spans {
		if strings.HasPrefix(where, "spokegate-envoy/") && slices.ContainsFunc(list, func(s span) bool { return s.id == id }) {
			return true
		}
	}
	return false
}

// tracedLarge: a large body is asked about twice, over gRPC and then over HTTP, and both are in the trace.
func tracedLarge(t *testing.T, c *collector, u *up) {
	t.Helper()
	large := tracedCall(u, "traced")
	large.body = bytes.Replace(large.body, []byte(secretPrompt), []byte(secretPrompt+strings.Repeat(" pad", 10_000)), 1)
	r := u.ok(t, large)
	var spans map[string][]span
	eventually(t, factPatience, func() error {
		if spans = c.of(r.admission()); len(spans["spokegate-envoy/request"]) != 1 || len(spans["spokegate-door/admission"]) != 2 {
			return fmt.Errorf("of a large request %v", spans)
		}
		return nil
	})
	for _, s := range spans["spokegate-door/admission"] {
		if s.trace != spans["spokegate-envoy/request"][0].trace || !isEnvoys(spans, s.parent) {
			t.Errorf("admission of a large request: %+v, in the trace of %+v", s, spans["spokegate-envoy/request"][0])
		}
	}
}

// carries wants attributes of a span.
func carries(t *testing.T, s span, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := s.attributes[name]; got != value {
			t.Errorf("span %s: %s is %q, want %q, in %v", s.name, name, got, value, s.attributes)
		}
	}
}

// TestClientCannotForceTracing: at a rate of nothing, nothing is traced, whatever a client sends.
func TestClientCannotForceTracing(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	u := traced(t, c, pickers[0], "0")
	const name = casePrefix + "forced"
	u.engine.plays(name, script{status: 200, chunks: []string{tracedStream}})
	for range 20 {
		u.ledger.usage(t, u.ok(t, tracedCall(u, "forced")).admission())
	}
	for _, h := range u.engine.got(name) {
		if tp := h.header.Get("Traceparent"); strings.Contains(tp, clientTrace) || strings.HasSuffix(tp, "-01") || h.header.Get("Tracestate") != "" {
			t.Errorf("the engine heard %q, %q", tp, h.header.Get("Tracestate"))
		}
	}
	stopped(t, u)
	if spans := c.all(); len(spans) > 0 {
		t.Errorf("%d spans, such as %+v", len(spans), spans[0])
	}
}

// TestClientTraceStopsAtTheDoor where there is no tracing at all: an engine may trace by itself.
func TestClientTraceStopsAtTheDoor(t *testing.T) {
	t.Parallel()
	u := attached(t, pickers[0])
	u.engine.plays(casePrefix+"untraced", script{status: 200, json: plainAnswer})
	for _, p := range protocols {
		u.doOver(t, p, tracedCall(u, "untraced"))
	}
	heard := u.engine.got(casePrefix + "untraced")
	for _, h := range heard {
		for _, f := range steering {
			if got := h.header.Get(f.name); got != "" {
				t.Errorf("the engine heard %s: %s", f.name, got)
			}
		}
	}
	if len(heard) != len(protocols) {
		t.Errorf("the engine heard %d requests", len(heard))
	}
}
