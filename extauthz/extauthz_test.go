package extauthz

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/codes"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/router"
)

func TestAdmitted(t *testing.T) { both(t, testAdmitted) }

func testAdmitted(t *testing.T) {
	g := newGate(t)
	resp, err := g.ask(t, t.Context(), set(envoy.ClientRequestIDHeader, "mine"))
	if err != nil || resp.GetStatus().GetCode() != int32(codes.OK) {
		t.Fatal(resp, err)
	}
	got := map[string]string{}
	for _, h := range resp.GetOkResponse().GetHeaders() {
		got[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	if got[envoy.EndpointHeader] != envoy.ClusterName("large") || got[envoy.MaxRetriesHeader] != "1" || len(got) != 3 {
		t.Errorf("headers %v", got)
	}
	c, err := g.verifier.Verify(got[envoy.ContextHeader], time.Now())
	if err != nil || c.Admission != "r-1" || c.Key != "k1" || c.Team != "t1" || c.Model != "cheap" {
		t.Errorf("context %+v, %v", c, err)
	}
	if d := resp.GetDynamicMetadata().GetFields()[envoy.DestinationKey].GetStringValue(); d != "10.0.0.1:1,10.0.0.2:1" {
		t.Errorf("destination %q", d)
	}
	if n := len(resp.GetOkResponse().GetResponseHeadersToAdd()); n != 3 {
		t.Errorf("%d rate-limit headers, want 3", n)
	}
	if r := *g.records; len(r) != 1 || r[0].GetKind() != "admitted" || r[0].GetKey() != "k1" || r[0].GetClientRequestId() != "mine" {
		t.Errorf("records %v", r)
	}
}

func TestRefusalsCountNothing(t *testing.T) { both(t, testRefusalsCountNothing) }

func testRefusalsCountNothing(t *testing.T) {
	g := newGate(t)
	for name, c := range map[string]struct {
		opts   []change
		status int
		code   string
	}{
		"no key":                         {[]change{set("authorization", "")}, 401, "invalid_api_key"},
		"another scheme":                 {[]change{set("authorization", "Basic "+g.key)}, 401, "invalid_api_key"},
		"scheme alone":                   {[]change{set("authorization", "Bearer")}, 401, "invalid_api_key"},
		"two keys in one header":         {[]change{set("authorization", "Bearer "+g.key+",Bearer "+g.key)}, 401, "invalid_api_key"},
		"revoked":                        {[]change{set("authorization", "Bearer "+g.revoked)}, 401, "invalid_api_key"},
		"expired":                        {[]change{set("authorization", "Bearer "+g.expired)}, 401, "invalid_api_key"},
		"good and garbage":               {[]change{set("x-api-key", "nope")}, 401, "invalid_api_key"},
		"good and another good form":     {[]change{set("x-api-key", g.revoked)}, 401, "invalid_api_key"},
		"no request id":                  {[]change{set("x-request-id", "")}, 503, "unavailable"},
		"unknown path without key":       {[]change{at("POST", "/admin"), set("authorization", "")}, 401, "invalid_api_key"},
		"unknown path":                   {[]change{at("POST", "/admin")}, 404, "unknown_url"},
		"path parameter":                 {[]change{at("POST", "/v1/chat/completions;a=b")}, 404, "unknown_url"},
		"trailing slash":                 {[]change{at("POST", "/v1/chat/completions/")}, 404, "unknown_url"},
		"wrong method":                   {[]change{at("GET", "/v1/chat/completions")}, 405, "method_not_allowed"},
		"model in the query":             {[]change{at("POST", "/v1/chat/completions?MODEL=x")}, 400, "invalid_body"},
		"escaped model in the query":     {[]change{at("POST", "/v1/chat/completions?a=b&mo%64el=x")}, 400, "invalid_body"},
		"semicolons in the query":        {[]change{at("POST", "/v1/chat/completions?a;model=x")}, 400, "invalid_body"},
		"malformed query":                {[]change{at("POST", "/v1/chat/completions?%zz")}, 400, "invalid_body"},
		"two hosts":                      {[]change{func(h *authv3.AttributeContext_HttpRequest) { h.Host = "a,b" }}, 400, "invalid_body"},
		"no type":                        {[]change{set("content-type", "")}, 415, "unsupported_media_type"},
		"two types":                      {[]change{set("content-type", "application/json,application/json")}, 415, "unsupported_media_type"},
		"form":                           {[]change{set("content-type", "multipart/form-data; boundary=x")}, 415, "unsupported_media_type"},
		"compressed in another way":      {[]change{set("content-encoding", "br")}, 415, "unsupported_media_type"},
		"compressed twice":               {[]change{set("content-encoding", "gzip, gzip")}, 415, "unsupported_media_type"},
		"not what it says it is":         {[]change{set("content-encoding", "gzip")}, 400, "invalid_body"},
		"a JWT where there is no issuer": {[]change{set("authorization", "Bearer a.b.c")}, 401, "invalid_api_key"},
		"not allowed":                    {[]change{body(`{"model":"dear"}`)}, 403, "model_not_allowed"},
		"unknown":                        {[]change{body(`{"model":"none"}`)}, 404, "model_not_found"},
		"served by another spoke":        {[]change{body(`{"model":"cheap-far"}`)}, 404, "model_elsewhere"},
		"one that another spoke serves":  {[]change{at("GET", "/v1/models/cheap-far"), body("")}, 404, "model_elsewhere"},
		"broken":                         {[]change{body(`{"model":"cheap"`)}, 400, "invalid_body"},
		"steers the engine":              {[]change{body(`{"model":"cheap","cache_salt":"x"}`)}, 400, "invalid_body"},
		"one model that is not allowed":  {[]change{at("GET", "/v1/models/dear"), body("")}, 403, "model_not_allowed"},
		"one model that is not there":    {[]change{at("GET", "/v1/models/none"), body("")}, 404, "model_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := g.ask(t, t.Context(), c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			denial(t, resp, c.status, c.code)
			if strings.Contains(resp.String(), g.key) || strings.Contains(resp.String(), g.revoked) {
				t.Error("the answer echoes a key")
			}
		})
	}
	if n := len(*g.records) + g.Flights.Len() + len(g.limiter.InFlight()); n != 0 {
		t.Errorf("refusals left %v, %d flights, leases %v", *g.records, g.Flights.Len(), g.limiter.InFlight())
	}
}

func TestTheSameKeyInBothHeadersIsOneKey(t *testing.T) { both(t, testTheSameKeyInBothHeadersIsOneKey) }

func testTheSameKeyInBothHeadersIsOneKey(t *testing.T) {
	g := newGate(t)
	if resp, err := g.ask(t, t.Context(), set("x-api-key", g.key)); err != nil || resp.GetOkResponse() == nil {
		t.Fatal(resp, err)
	}
}

func TestAllowedFieldPasses(t *testing.T) { both(t, testAllowedFieldPasses) }

func testAllowedFieldPasses(t *testing.T) {
	g := newGate(t)
	if resp, err := g.ask(t, t.Context(), body(`{"model":"cheap","priority":1}`)); err != nil || resp.GetOkResponse() == nil {
		t.Fatal(resp, err)
	}
}

func TestModelsAreThoseOfTheKey(t *testing.T) { both(t, testModelsAreThoseOfTheKey) }

func testModelsAreThoseOfTheKey(t *testing.T) {
	g := newGate(t)
	resp, err := g.ask(t, t.Context(), at("GET", "/v1/models"), body(""))
	if err != nil {
		t.Fatal(err)
	}
	d := resp.GetDeniedResponse()
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(d.GetBody()), &list); err != nil || d.GetStatus().GetCode() != 200 ||
		resp.GetStatus().GetCode() == int32(codes.OK) || len(list.Data) != 1 || list.Data[0].ID != "cheap" {
		t.Fatalf("%v, %v", resp, err)
	}
	if len(*g.records) != 0 {
		t.Error("a list of models opened a flight")
	}
}

func TestHeadCheckCountsNothingAndGivesNothing(t *testing.T) {
	both(t, testHeadCheckCountsNothingAndGivesNothing)
}

func testHeadCheckCountsNothingAndGivesNothing(t *testing.T) {
	g := newGate(t)
	resp, err := g.ask(t, head(), body(""))
	if err != nil || resp.GetOkResponse() == nil {
		t.Fatal(resp, err)
	}
	if len(resp.GetOkResponse().GetHeaders()) != 0 || resp.GetDynamicMetadata() != nil || len(*g.records) != 0 || len(g.limiter.InFlight()) != 0 {
		t.Errorf("a check on headers gave or counted something: %v", resp)
	}
	resp, _ = g.ask(t, head(), set("authorization", "Bearer nope"))
	denial(t, resp, 401, "invalid_api_key")
	resp, _ = g.ask(t, head(), set("content-length", "1048577"))
	denial(t, resp, 413, "body_too_large")
	resp, _ = g.ask(t, head(), set("content-type", "text/plain"))
	denial(t, resp, 415, "unsupported_media_type")
}

func TestAskedTwiceCountsOnce(t *testing.T) { both(t, testAskedTwiceCountsOnce) }

func testAskedTwiceCountsOnce(t *testing.T) {
	g := newGate(t)
	for range 5 {
		if resp, err := g.ask(t, t.Context()); err != nil || resp.GetOkResponse() == nil {
			t.Fatal(resp, err)
		}
	}
	if len(*g.records) != 1 || g.Flights.Len() != 1 {
		t.Errorf("%d records, %d flights", len(*g.records), g.Flights.Len())
	}
	for id, n := range g.limiter.InFlight() {
		if n != 1 {
			t.Errorf("%s holds %d leases", id, n)
		}
	}
}

// TestEndedAdmissionPassesNoMore: nothing would hold a place for it, or count it.
func TestEndedAdmissionPassesNoMore(t *testing.T) { both(t, testEndedAdmissionPassesNoMore) }

func testEndedAdmissionPassesNoMore(t *testing.T) {
	g := newGate(t)
	if resp, err := g.ask(t, t.Context()); err != nil || resp.GetOkResponse() == nil {
		t.Fatal(resp, err)
	}
	g.Flights.End("r-1", notServed("over", 503, time.Now()))
	resp, err := g.ask(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 503, "unavailable")
}

// mute refuses and does not say why.
type mute struct{ limits.Limiter }

func (mute) Acquire(context.Context, time.Time, limits.Ask) (limits.Decision, error) {
	return limits.Decision{}, nil
}

func TestZeroDecisionIsNo(t *testing.T) { both(t, testZeroDecisionIsNo) }

func testZeroDecisionIsNo(t *testing.T) {
	g := newGate(t)
	g.Limiter = mute{}
	resp, err := g.ask(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 503, "unavailable")
}

func TestLimitRefusesInTheClientsWords(t *testing.T) { both(t, testLimitRefusesInTheClientsWords) }

func testLimitRefusesInTheClientsWords(t *testing.T) {
	g := newGate(t)
	for _, id := range []string{"a", "b"} {
		if resp, err := g.ask(t, t.Context(), set("x-request-id", id)); err != nil || resp.GetOkResponse() == nil {
			t.Fatal(resp, err)
		}
	}
	resp, _ := g.ask(t, t.Context(), set("x-request-id", "c"))
	denial(t, resp, 429, "concurrency_limit_exceeded")
	got := map[string]string{}
	for _, h := range resp.GetDeniedResponse().GetHeaders() {
		got[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	for _, name := range []string{"retry-after", "retry-after-ms", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"} {
		if got[name] == "" {
			t.Errorf("%s is missing in %v", name, got)
		}
	}
}

func TestNoWorkerFreesEverythingAndIsJournaled(t *testing.T) {
	both(t, testNoWorkerFreesEverythingAndIsJournaled)
}

func testNoWorkerFreesEverythingAndIsJournaled(t *testing.T) {
	g := newGate(t)
	g.Picker = pickerFunc(func() (router.Choice, error) { return router.Choice{}, errors.New("no worker is ready") })
	resp, err := g.ask(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 503, "overloaded")
	r := *g.records
	if len(r) != 2 || r[1].GetOutcome() != "not_served" || r[1].GetStatus() != 503 || g.Flights.Len() != 0 || len(g.limiter.InFlight()) != 0 {
		t.Errorf("records %v, %d flights, leases %v", r, g.Flights.Len(), g.limiter.InFlight())
	}
}

// TestDoneContextIsNoYes: Envoy may believe an OK that comes after it has given up.
func TestDoneContextIsNoYes(t *testing.T) {
	g := newGate(t)
	ctx, cancel := context.WithCancel(context.Background())
	g.Picker = pickerFunc(func() (router.Choice, error) {
		cancel()
		return router.Choice{Addrs: []string{"10.0.0.1:1"}}, nil
	})
	resp, err := g.ask(t, ctx)
	if err == nil || resp != nil {
		t.Fatalf("answered %v", resp)
	}
	// Envoy's log comes, before or after, and says why.
	g.Flights.End("r-1", flight.Facts{Logged: &flight.Logged{ClientCut: true, At: time.Now()}})
	if r := *g.records; g.Flights.Len() != 0 || len(g.limiter.InFlight()) != 0 || r[len(r)-1].GetOutcome() != "client_cut" {
		t.Errorf("%d flights, leases %v, records %v", g.Flights.Len(), g.limiter.InFlight(), r)
	}
}

// TestLogOvertakesAdmission: the client left before its flight was opened.
func TestLogOvertakesAdmission(t *testing.T) { both(t, testLogOvertakesAdmission) }

func testLogOvertakesAdmission(t *testing.T) {
	g := newGate(t)
	g.Flights.End("r-1", flight.Facts{Logged: &flight.Logged{ClientCut: true, At: time.Now()}})
	resp, err := g.ask(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	denial(t, resp, 503, "overloaded") // nobody hears it
	if r := *g.records; g.Flights.Len() != 0 || len(g.limiter.InFlight()) != 0 || r[len(r)-1].GetOutcome() != "client_cut" {
		t.Errorf("%d flights, leases %v, records %v", g.Flights.Len(), g.limiter.InFlight(), r)
	}
}
