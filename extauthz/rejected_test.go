package extauthz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
	"github.com/spokegate/spokegate/usage"
)

// noted are the refusals that a door would journal.
type noted struct {
	mu   sync.Mutex
	list []usage.Refusal
}

func (n *noted) Refuse(r usage.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, r)
}

// taken returns what was noted since, and forgets it.
func (n *noted) taken() []usage.Refusal {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// TestEachRefusalIsNoted: by which code, of which limit, and whose; never a secret, and of a model only what the policy names.
func TestEachRefusalIsNoted(t *testing.T) { both(t, testEachRefusalIsNoted) }

func testEachRefusalIsNoted(t *testing.T) {
	g, n := newGate(t), &noted{}
	g.Refusals = n
	wrong, _ := identity.NewKey()
	known := usage.Alike{Key: "k1", Team: "t1"}
	with := func(a usage.Alike, change func(*usage.Alike)) usage.Alike { change(&a); return a }
	invalid := usage.Alike{Code: "invalid_api_key", Status: 401}
	reason := func(s string) usage.Alike { return with(invalid, func(a *usage.Alike) { a.Reason = s }) }
	for name, c := range map[string]struct {
		change change
		op     string
		want   usage.Alike
	}{
		"no key":      {func(h *authv3.AttributeContext_HttpRequest) { delete(h.Headers, "authorization") }, "chat", reason("none")},
		"wrong key":   {set("authorization", "Bearer "+wrong), "chat", reason("unknown")},
		"no form":     {set("authorization", "Bearer nothing"), "chat", reason("malformed")},
		"revoked":     {set("authorization", "Bearer "+g.revoked), "chat", with(reason("revoked"), func(a *usage.Alike) { a.Key, a.Team = "k2", "t1" })},
		"expired":     {set("authorization", "Bearer "+g.expired), "chat", with(reason("expired"), func(a *usage.Alike) { a.Key, a.Team = "k3", "t1" })},
		"wrong path":  {at("POST", "/v2/"+g.key), "unknown", with(known, func(a *usage.Alike) { a.Code, a.Status = "unknown_url", 404 })},
		"wrong type":  {set("content-type", "text/plain"), "chat", with(known, func(a *usage.Alike) { a.Code, a.Status = "unsupported_media_type", 415 })},
		"bad body":    {body(`{"model":`), "chat", with(known, func(a *usage.Alike) { a.Code, a.Status = "invalid_body", 400 })},
		"no model":    {body(`{"model":"` + g.key + `","messages":[]}`), "chat", with(known, func(a *usage.Alike) { a.Code, a.Status = "model_not_found", 404 })},
		"not allowed": {body(`{"model":"dear","messages":[]}`), "chat", with(known, func(a *usage.Alike) { a.Code, a.Status, a.Model = "model_not_allowed", 403, "dear" })},
		"not allowed, in the list": {at("GET", "/v1/models/dear"), "models",
			with(known, func(a *usage.Alike) { a.Code, a.Status, a.Model = "model_not_allowed", 403, "dear" })},
		"steering": {body(`{"model":"cheap","messages":[],"cache_salt":"x"}`), "chat",
			with(known, func(a *usage.Alike) {
				a.Code, a.Status, a.Model, a.Endpoint = "invalid_body", 400, "cheap", "large"
			})},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := g.ask(t, context.Background(), set(envoy.ClientRequestIDHeader, "mine"), c.change); err != nil {
				t.Fatal(err)
			}
			got := n.taken()
			if len(got) != 1 {
				t.Fatalf("%d refusals noted", len(got))
			}
			if diff := cmp.Diff(c.want, got[0].Alike); diff != "" || got[0].Admission != "r-1" || got[0].ClientRequestID != "mine" || got[0].Operation != c.op || got[0].At.IsZero() {
				t.Errorf("%+v (-want +got):\n%s", got[0], diff)
			}
			if said := fmt.Sprintf("%+v", got[0]); strings.Contains(said, g.key) || strings.Contains(said, wrong) {
				t.Errorf("it repeats a secret: %s", said)
			}
		})
	}
}

// TestRefusalsOfLimitsNameThem: and what was admitted, or answered by the door, or that no worker took, is none.
func TestRefusalsOfLimitsNameThem(t *testing.T) { both(t, testRefusalsOfLimitsNameThem) }

func testRefusalsOfLimitsNameThem(t *testing.T) {
	g, n := newGate(t), &noted{}
	g.Refusals = n
	long := func(h *authv3.AttributeContext_HttpRequest) {
		h.Headers[envoy.ClientRequestIDHeader] = strings.Repeat("é", 100)
	}
	for i := range 3 {
		if _, err := g.ask(t, context.Background(), set("x-request-id", fmt.Sprint("r", i)), long); err != nil {
			t.Fatal(err)
		}
	}
	got := n.taken()
	want := usage.Alike{Code: "concurrency_limit_exceeded", Status: 429, Limit: "team/concurrency", Key: "k1", Team: "t1", Model: "cheap", Endpoint: "large"}
	if len(got) != 1 || got[0].Alike != want || got[0].Admission != "r2" || got[0].ClientRequestID != strings.Repeat("é", 64) {
		t.Errorf("%+v", got)
	}
	g.Picker = pickerFunc(func() (router.Choice, error) { return router.Choice{}, errors.New("no worker") })
	for name, change := range map[string]change{"list": at("GET", "/v1/models"), "no worker": set("authorization", "Bearer "+g.boundless)} {
		if _, err := g.ask(t, context.Background(), set("x-request-id", name), change); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.taken(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRefusalOfAnAlias: the model is the one that it would have gone to, once that is known.
func TestRefusalOfAnAlias(t *testing.T) {
	n := &noted{}
	s := &Server{Config: Config{Refusals: n, Now: time.Now}}
	chat, large := &policy.Model{Name: "chat"}, &policy.Model{Name: "large", Endpoint: &policy.Endpoint{Name: "e"}}
	for _, c := range []struct {
		a                      answer
		model, asked, endpoint string
	}{
		{answer{asked: chat}, "chat", "", ""},
		{answer{asked: chat, model: large}, "large", "chat", "e"},
		{answer{asked: large, model: large}, "large", "", "e"},
	} {
		c.a.refusal = openai.InvalidKey()
		s.journal(&question{}, &c.a)
		if got := n.taken()[0]; got.Model != c.model || got.AskedModel != c.asked || got.Endpoint != c.endpoint {
			t.Errorf("%+v", got)
		}
	}
}

func TestLimitName(t *testing.T) {
	for want, b := range map[string]limits.Standing{
		"platform/rate":                 {Limit: policy.Limit{Level: policy.Platform}, Kind: limits.Rate},
		"team/tokens_per_minute/a/b":    {Limit: policy.Limit{Level: policy.TeamLevel, Owner: "t", Model: "a/b"}, Kind: limits.TokensPerMinute},
		"model/requests_per_day/large":  {Limit: policy.Limit{Level: policy.ModelLevel, Owner: "large", Model: "large"}, Kind: limits.RequestsPerDay},
		"key/tokens_per_month/m:latest": {Limit: policy.Limit{Level: policy.KeyLevel, Owner: "k", Model: "m:latest"}, Kind: limits.TokensPerMonth},
	} {
		if got := limitName(&b); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
