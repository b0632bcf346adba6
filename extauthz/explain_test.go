package extauthz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/usage"
)

// routed is a picker that is a router, with what it was told.
type routed struct {
	*router.Router
	hints []router.Ask
}

// Pick takes the body as the prompt.
func (r *routed) Pick(_ context.Context, now time.Time, _ string, hints router.Ask, _ *openai.Request, body []byte) (router.Choice, error) {
	r.hints = append(r.hints, hints)
	hints.Prompt = body
	return r.Router.Pick(now, hints)
}

// routedGate is a gate before so many workers, which take one waiting request each.
func routedGate(t *testing.T, workers int) (*gate, *routed) {
	g, r := newGate(t), &routed{Router: router.New(router.Config{OverlapWeight: 16})}
	var all []router.Worker
	for i := range workers {
		all = append(all, router.Worker{Addr: fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250)})
	}
	r.SetWorkers(all)
	r.SetRouting(policy.Routing{OverlapWeight: 16, MissWeight: 1, Busy: policy.Busy{Queue: 1}})
	g.Picker = r
	return g, r
}

func by(key string) change { return set("authorization", "Bearer "+key) }

func header(list []*corev3.HeaderValueOption, name string) string {
	for _, h := range list {
		if h.GetHeader().GetKey() == name {
			return h.GetHeader().GetValue()
		}
	}
	return ""
}

// TestAChoiceIsExplained to whoever may know and asks, and to nobody else.
func TestAChoiceIsExplained(t *testing.T) { both(t, testAChoiceIsExplained) }

func testAChoiceIsExplained(t *testing.T) {
	g, _ := routedGate(t, 3)
	const secret = "the-secret-plan"
	for i, c := range []struct {
		key, asks string
		told      bool
	}{{g.curious, "1", true}, {g.curious, "yes", true}, {g.curious, "0", false}, {g.curious, "", false}, {g.boundless, "1", false}} {
		resp, err := g.ask(t, t.Context(), by(c.key), set(envoy.ExplainHeader, c.asks), set("x-request-id", fmt.Sprint("r", i)),
			body(`{"model":"cheap","messages":[{"role":"user","content":"`+secret+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		ok := resp.GetOkResponse()
		if ok == nil && i < 3 {
			t.Fatalf("%d: %v", i, resp)
		}
		why := header(ok.GetResponseHeadersToAdd(), envoy.ExplainHeader)
		if i >= 3 { // all are busy by now
			why = header(resp.GetDeniedResponse().GetHeaders(), envoy.ExplainHeader)
		}
		if (why != "") != c.told || strings.Contains(why, secret) || header(ok.GetHeaders(), envoy.ExplainHeader) != "" {
			t.Errorf("%d: %q", i, why)
		}
		if c.told && (strings.Count(why, " | ") != 3 || strings.Count(why, "(chosen)") != 1 || !strings.HasPrefix(why, "2 blocks; cost = 16 * (prefill + 1 * missing) + decode | 10.0.0.")) {
			t.Errorf("%d: %q", i, why)
		}
	}
	resp, err := g.ask(t, t.Context(), by(g.curious), set(envoy.ExplainHeader, "1"), set("x-request-id", "busy"))
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 503, "overloaded")
	if why := header(resp.GetDeniedResponse().GetHeaders(), envoy.ExplainHeader); strings.Count(why, "busy: queue 1 of 1") != 3 || strings.Contains(why, "chosen") {
		t.Errorf("%q", why)
	}
}

// TestALongExplanation leaves out the dearest workers, and says how many; it is fit for a header, whatever there is in it.
func TestALongExplanation(t *testing.T) {
	_, r := routedGate(t, 1000)
	c, err := r.Router.Pick(time.Now(), router.Ask{Prompt: []byte(strings.Repeat("x", 1000))})
	if err != nil {
		t.Fatal(err)
	}
	if why := explanation(c); len(why) > mostExplained || strings.Count(why, c.Addrs[0]+": overlap 0") != 1 || strings.Count(why, "(chosen)") != 1 {
		t.Errorf("%d bytes: %s", len(why), why)
	}
	text := "16 blocks; cost = 1 × prefill − é\n"
	for i := range 1000 {
		text += fmt.Sprintf("10.0.0.%d:8000: overlap 0, cost %d", i, i)
		if i == 700 {
			text += " (chosen)"
		}
		text += "\n"
	}
	why := oneLine(text)
	told := strings.Count(why, ": overlap ")
	if len(why) > mostExplained || told < 50 || !strings.HasPrefix(why, "16 blocks; cost = 1 * prefill - ? | 10.0.0.0:8000: overlap 0, cost 0 | ") ||
		!strings.HasSuffix(why, fmt.Sprintf(" | 10.0.0.700:8000: overlap 0, cost 700 (chosen) | %d more are left out", 1000-told)) {
		t.Errorf("%d bytes of %d workers: %s", len(why), told, why)
	}
}

// TestBusyWorkers: 503 for most, 429 for what is shed, both with when to come again; the admission has its records, holds nothing,
// and the door serves again as soon as a worker does.
func TestBusyWorkers(t *testing.T) { both(t, testBusyWorkers) }

func testBusyWorkers(t *testing.T) {
	g, r := routedGate(t, 1)
	resp, err := g.ask(t, t.Context(), by(g.boundless), set("x-request-id", "first"))
	if err != nil || resp.GetOkResponse() == nil {
		t.Fatalf("%v, %v", resp, err)
	}
	for key, want := range map[string]struct {
		status int
		code   string
	}{g.boundless: {503, "overloaded"}, g.sheddable: {429, "shed"}} {
		resp, err := g.ask(t, t.Context(), by(key), set("x-request-id", want.code))
		if err != nil {
			t.Fatal(err)
		}
		denial(t, resp, want.status, want.code)
		if wait := header(resp.GetDeniedResponse().GetHeaders(), "retry-after"); wait == "" || wait == "0" {
			t.Errorf("%s: come again after %q", want.code, wait)
		}
		if g.Flights.Live(want.code) {
			t.Errorf("%s: its flight is open", want.code)
		}
		outcome := ""
		for _, rec := range *g.records {
			if rec.Admission == want.code && rec.Kind == usage.KindUsage {
				outcome = rec.Outcome
			}
		}
		if outcome != usage.OutcomeNotServed {
			t.Errorf("%s: outcome %q", want.code, outcome)
		}
	}
	if l := r.Load(); l[0].Requests != 1 {
		t.Errorf("load %+v", l)
	}
	g.Flights.End("first", notServed("the test", 503, time.Now()))
	if resp, err = g.ask(t, t.Context(), by(g.sheddable), set("x-request-id", "again")); err != nil || resp.GetOkResponse() == nil {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestSessions are a team's own, and hashed; of a long one the first 256 bytes count.
func TestSessions(t *testing.T) { both(t, testSessions) }

func testSessions(t *testing.T) {
	g, r := routedGate(t, 100)
	long := strings.Repeat("s", router.MostSession)
	for i, c := range []struct{ key, session string }{
		{g.boundless, "a"}, {g.curious, "a"}, {g.key, "a"}, {g.boundless, "b"}, {g.boundless, ""}, {g.boundless, long}, {g.boundless, long + "more"},
	} {
		if _, err := g.ask(t, t.Context(), by(c.key), set("x-session-id", c.session), set("x-request-id", fmt.Sprint("r", i))); err != nil {
			t.Fatal(err)
		}
	}
	s := func(i int) uint64 { return r.hints[i].Session }
	if s(0) == 0 || s(0) != s(1) || s(0) == s(2) || s(0) == s(3) || s(4) != 0 || s(5) != s(6) || s(5) == s(0) {
		t.Errorf("%+v", r.hints)
	}
	if _, err := g.Picker.Pick(t.Context(), time.Now(), "large", router.Ask{Subset: []string{}}, nil, nil); !errors.Is(err, router.ErrNoneEligible) {
		t.Error(err)
	}
}
