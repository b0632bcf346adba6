package extauthz

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/router"
)

const (
	envoysTrace = "11111111111111111111111111111111"
	theirTrace  = "22222222222222222222222222222222"
)

func called(traceparent string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs("traceparent", traceparent))
}

// TestSpans: Envoy decides what is traced, and a client's trace is linked at most.
func TestSpans(t *testing.T) { both(t, testSpans) }

func testSpans(t *testing.T) {
	for name, c := range map[string]struct {
		envoys, theirs string
		traced, linked bool
	}{
		"traced":                           {"00-" + envoysTrace + "-1111111111111111-01", "", true, false},
		"traced, with a client's own":      {"00-" + envoysTrace + "-1111111111111111-01", "00-" + theirTrace + "-2222222222222222-01", true, true},
		"traced, with a client's nonsense": {"00-" + envoysTrace + "-1111111111111111-01", "00-Bearer sk-secret", true, false},
		"not traced":                       {"00-" + envoysTrace + "-1111111111111111-00", "00-" + theirTrace + "-2222222222222222-01", false, false},
		"no word of Envoy's":               {"", "00-" + theirTrace + "-2222222222222222-01", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			kept := tracetest.NewSpanRecorder()
			g.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(kept), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))).Tracer("")
			if resp, err := g.ask(t, called(c.envoys), set(envoy.ClientTraceHeader, c.theirs)); err != nil || resp.GetOkResponse() == nil {
				t.Fatal(resp, err)
			}
			spans := kept.Ended()
			if traced := len(spans) == 1; traced != c.traced {
				t.Fatalf("%d spans, want traced %v", len(spans), c.traced)
			}
			if !c.traced {
				return
			}
			admission := spans[0]
			if admission.Name() != "admission" || admission.SpanContext().TraceID().String() != envoysTrace || admission.Parent().SpanID().String() != "1111111111111111" {
				t.Errorf("span %v", admission)
			}
			if linked := len(admission.Links()) == 1 && admission.Links()[0].SpanContext.TraceID().String() == theirTrace; linked != c.linked {
				t.Errorf("links %v", admission.Links())
			}
		})
	}
}

// fails stands for issuers that refuse all tokens, for one reason.
type fails struct{ why error }

func (f fails) Verify(string, time.Time) (identity.Subject, error) {
	return identity.Subject{}, f.why
}

// TestLogNamesTheAdmissionAndNothingOfTheClients asks in every way that is refused, with secrets in every place.
func TestLogNamesTheAdmissionAndNothingOfTheClients(t *testing.T) {
	both(t, testLogNamesTheAdmissionAndNothingOfTheClients)
}

func testLogNamesTheAdmissionAndNothingOfTheClients(t *testing.T) {
	g := newGate(t)
	var out bytes.Buffer
	g.Log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.Issuers = fails{identity.ErrTokenExpired}
	const secret = "what-nobody-may-read"
	for name, c := range map[string]struct {
		changes []change
		want    []string
	}{
		"unknown key":   {[]change{set("authorization", "Bearer "+secret)}, []string{`"msg":"refused"`, `"code":"invalid_api_key"`, `"status":401`, `"reason":"malformed"`}},
		"JWT":           {[]change{set("authorization", "Bearer a.b."+secret)}, []string{`"code":"invalid_api_key"`, `"reason":"token"`, `"wrong":"the token is refused: expired"`}},
		"unknown path":  {[]change{at("POST", "/"+secret+"?"+secret)}, []string{`"code":"unknown_url"`, `"key":"k1"`, `"team":"t1"`}},
		"query":         {[]change{at("POST", "/v1/chat/completions?model="+secret)}, []string{`"code":"invalid_body"`}},
		"type":          {[]change{set("content-type", secret+"/x")}, []string{`"code":"unsupported_media_type"`}},
		"model":         {[]change{body(`{"model":"` + secret + `"}`)}, []string{`"code":"model_not_found"`}},
		"bad body":      {[]change{body(`{"model":"cheap","` + secret + `":` + secret + `}`)}, []string{`"code":"invalid_body"`}},
		"no worker":     {nil, []string{`"msg":"admitted, but not served"`, `"level":"WARN"`, `"reason":"nobody"`, `"model":"cheap"`, `"endpoint":"large"`}},
		"client's name": {[]change{set(envoy.ClientRequestIDHeader, secret), set(envoy.ClientTraceHeader, secret), set("authorization", "")}, []string{`"code":"invalid_api_key"`}},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			g.Picker = pickerFunc(func() (router.Choice, error) { return router.Choice{}, errors.New("nobody") })
			if _, err := g.ask(t, t.Context(), append([]change{set("x-request-id", "id of "+name)}, c.changes...)...); err != nil {
				t.Fatal(err)
			}
			line := out.String()
			for _, w := range append(c.want, `"admission":"id of `+name+`"`) {
				if !strings.Contains(line, w) {
					t.Errorf("no %s in %s", w, line)
				}
			}
			if strings.Count(line, "\n") != 1 || strings.Contains(line, secret) || strings.Contains(line, g.key) {
				t.Errorf("logged: %s", line)
			}
		})
	}
}

// Who has had a good token is told that it is over; of any other fault as little as ever.
func TestAnExpiredTokenIsToldSo(t *testing.T) { both(t, testAnExpiredTokenIsToldSo) }

func testAnExpiredTokenIsToldSo(t *testing.T) {
	g := newGate(t)
	for _, c := range []struct {
		wrong              error
		challenge, message string
	}{
		{identity.ErrTokenExpired, `Bearer error="invalid_token", error_description="the token has expired"`, "has expired"},
		{identity.ErrToken, "Bearer", "No valid API key"},
	} {
		g.Issuers = fails{c.wrong}
		resp, err := g.ask(t, t.Context(), set("authorization", "Bearer a.b.c"))
		if err != nil {
			t.Fatal(err)
		}
		d := resp.GetDeniedResponse()
		challenge := ""
		for _, h := range d.GetHeaders() {
			if h.GetHeader().GetKey() == "www-authenticate" {
				challenge = h.GetHeader().GetValue()
			}
		}
		if d.GetStatus().GetCode() != 401 || challenge != c.challenge || !strings.Contains(d.GetBody(), c.message) || !strings.Contains(d.GetBody(), "invalid_api_key") {
			t.Errorf("%v: %v", c.wrong, d)
		}
	}
}
