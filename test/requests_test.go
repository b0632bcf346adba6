package test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spokegate/spokegate/usage"
)

// TestRequests sends each case over both protocols and with both pickers, before a real shim and before a worker of the
// tests' own, which sees what a shim receives.
func TestRequests(t *testing.T) {
	t.Parallel()
	cases := append(loadCases[requestCase](t, "requests.yaml"), loadCases[requestCase](t, "more-requests.yaml")...)
	eachPicker(t, func(t *testing.T, picker string) {
		t.Run("cases", func(t *testing.T) { // which ends when all of them have ended
			for _, p := range protocols {
				t.Run("shim/"+p.name, func(t *testing.T) { runRequests(t, attached(t, picker), p, cases) })
				t.Run("worker/"+p.name, func(t *testing.T) { runRequests(t, tapped(t, picker), p, cases) })
			}
		})
		t.Run("nothing else reached the engine", func(t *testing.T) { attached(t, picker).engine.silent(t) })
		t.Run("nothing else reached the worker", func(t *testing.T) { tapped(t, picker).tap.silent(t) })
	})
}

func runRequests(t *testing.T, u *up, p protocol, cases []requestCase) {
	t.Parallel()
	for _, c := range cases {
		if c.Only != "" && c.Only != p.name {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if u.foreign { // where each waits for the log that comes once a second
				t.Parallel()
			}
			c.run(t, u, p)
		})
	}
}

func (c requestCase) run(t *testing.T, u *up, p protocol) {
	if u.foreign && !utf8.Valid(c.body()) {
		t.Skip("a gateway hands bodies over as text, and changes what is none: the shim refuses what the door has not seen")
	}
	label := casePrefix + p.name + "/" + strings.ReplaceAll(c.Name, " ", "-")
	ctx, cancel := context.WithTimeout(t.Context(), callPatience)
	defer cancel()
	r, err := p.send(ctx, u.listen, c.call(u, label))
	if err != nil {
		if !c.mayReset() || p.name != "http2" {
			t.Fatalf("no answer: %v (so far: %v)", err, r)
		}
		c.never(t, u, label, "")
		return
	}
	if !slices.Contains(c.statuses(), r.status) {
		t.Fatalf("want %v, got %v", c.Status, r)
	}
	if r.status >= 400 && !u.refusesByItself(r) {
		if err := checkRefusal(r, c.Path, c.Code); err != nil {
			t.Error(err)
		}
	}
	if r.status >= 400 || c.Upstream == "never" {
		c.never(t, u, label, r.admission())
		return
	}
	c.reached(t, u, label, r)
}

// refusesByItself: a gateway's Envoy has no words of ours for what it refuses before the door is asked, and what waits for
// the door in vain.
func (u *up) refusesByItself(r reply) bool {
	return u.foreign && !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") && slices.Contains([]int{400, 403, 413, 503}, r.status)
}

// never wants that nobody behind the door has seen the request, and that it was not counted.
func (c requestCase) never(t *testing.T, u *up, label, id string) {
	t.Helper()
	if u.engine != nil {
		if got := u.engine.got(label); len(got) > 0 {
			t.Errorf("the engine received it: %+v", got)
		}
	}
	if u.tap != nil {
		if got := u.tap.got(label); len(got) > 0 {
			t.Errorf("the worker received it: %+v", got)
		}
	}
	u.ledger.refused(id)
}

// reached wants that it arrived once, as it was sent, and was counted.
func (c requestCase) reached(t *testing.T, u *up, label string, r reply) {
	t.Helper()
	var got heard
	if u.engine != nil {
		got = once(t, "engine", u.engine.got(label))
		for name := range got.header {
			if strings.HasPrefix(name, "X-Spokegate-") || strings.HasPrefix(name, "X-Gateway-") {
				t.Errorf("the engine received %s", name)
			}
		}
	} else {
		c := once(t, "worker", u.tap.got(label))
		got = c.heard
		if u.foreign { // its Envoy reads the header after it has removed others; shims take it away
			c.header = c.header.Clone()
			c.header.Del("X-Gateway-Destination-Endpoint")
		}
		if err := c.judge(r.admission()); err != nil {
			t.Error(err)
		}
	}
	c.inspect(t, u, got)
	rec := u.ledger.usage(t, r.admission())
	if rec.GetOutcome() != usage.OutcomeComplete || rec.GetKey() != "main" || rec.GetTeam() != "t1" || rec.GetModel() != "cheap" ||
		rec.GetStatus() != http.StatusOK || rec.GetPromptTokens() != 7 || rec.GetCompletionTokens() != 3 {
		t.Errorf("the usage record is %v", rec)
	}
	if n := rec.GetRequestBytes(); n != int64(len(c.body())) {
		t.Errorf("the record says %d bytes, %d were sent", n, len(c.body()))
	}
}

func (c requestCase) inspect(t *testing.T, u *up, got heard) {
	t.Helper()
	if !bytes.Equal(got.body, c.body()) {
		t.Errorf("the body was changed on its way: sent %.300q, got %.300q", c.body(), got.body)
	}
	if !bytes.Contains(got.body, []byte(c.BodyHas)) {
		t.Errorf("want %q in the body %.300q", c.BodyHas, got.body)
	}
	for name, value := range c.HeaderNot {
		if slices.Contains(got.header.Values(name), value) {
			t.Errorf("%s: %s went upstream", name, value)
		}
	}
	if c.HeaderHas != "" && u.tap != nil && got.header.Get(c.HeaderHas) == "" {
		t.Errorf("%s did not go upstream", c.HeaderHas)
	}
	for _, name := range append(c.HeaderOut, "Authorization", "X-Api-Key", "Cookie", "Proxy-Authorization") {
		if got.header.Values(name) != nil {
			t.Errorf("%s went upstream", name)
		}
	}
}
