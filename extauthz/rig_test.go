package extauthz

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

const policyText = `
models:
  - {name: cheap, endpoint: large}
  - {name: dear, endpoint: large}
endpoints:
  - {name: large, allow_fields: [priority]}
teams:
  - {name: t1, models: ["cheap*"], limits: [{concurrency: 2}]}
  - {name: boundless, models: [cheap]}
keys:
  - {id: k1, team: t1, sha256: KEY, labels: {cost-center: "4711"}}
  - {id: k2, team: t1, sha256: REVOKED, revoked: true}
  - {id: k4, team: boundless, sha256: BOUNDLESS}
  - {id: k5, team: boundless, sha256: CURIOUS, explain: true}
  - {id: k6, team: boundless, sha256: SHEDDABLE, sheddable: true}
  - {id: k3, team: t1, sha256: EXPIRED, expires: 2020-01-01T00:00:00Z}
`

// pickerFunc stands for the picker, which has tests of its own.
type pickerFunc func() (router.Choice, error)

func (f pickerFunc) Pick(context.Context, time.Time, string, router.Ask, *openai.Request, []byte) (router.Choice, error) {
	return f()
}

type records []*usagev1.Record

var recording sync.Mutex

func (r *records) Append(rec *usagev1.Record) {
	recording.Lock()
	defer recording.Unlock()
	*r = append(*r, rec)
}

// both runs a test over each of the two ways in which Envoy asks: whoever is named in the answers of one gets the same by the other.
func both(t *testing.T, test func(*testing.T)) {
	t.Run("grpc", test)
	t.Run("http", test)
}

type gate struct {
	*Server
	overHTTP              bool   // it is asked so
	socket                string // and where
	key, revoked, expired string
	boundless             string // a key without limits
	curious, sheddable    string // the same, one that may have choices explained, and one that is refused first
	records               *records
	limiter               *limits.Memory
	verifier              *identity.Verifier
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{overHTTP: strings.Contains(t.Name()+"/", "/http/"), records: &records{}, limiter: limits.NewMemory(limits.MemoryConfig{}), verifier: identity.NewVerifier("large")}
	text := policyText
	for name, secret := range map[string]*string{"KEY": &g.key, "REVOKED": &g.revoked, "EXPIRED": &g.expired, "BOUNDLESS": &g.boundless, "CURIOUS": &g.curious, "SHEDDABLE": &g.sheddable} {
		s, h := identity.NewKey()
		*secret = s
		text = strings.ReplaceAll(text, "sha256: "+name, `sha256: "`+h.String()+`"`)
	}
	set, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set.Models = append(set.Models, &policyv1.Model{Name: "cheap-far", Elsewhere: "spoke-b"}) // only a hub can say so
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	current := &policy.Current{}
	current.Store(snap)
	minter := identity.NewMinter("door-1")
	g.verifier.SetKey("door-1", minter.PublicKey())
	g.Server = New(Config{
		Policy: current, Limiter: g.limiter, Minter: minter, BodyLimit: 1 << 20, Now: time.Now,
		Flights:    flight.New(flight.Config{Limiter: g.limiter, Journal: g.records}),
		Picker:     pickerFunc(func() (router.Choice, error) { return router.Choice{Addrs: []string{"10.0.0.1:1", "10.0.0.2:1"}}, nil }),
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	g.guesses.wait = func(context.Context, time.Duration) {}
	if g.overHTTP {
		g.listen(t)
	}
	return g
}

// change is what a test does to a good request.
type change func(*authv3.AttributeContext_HttpRequest)

// ask is a good request, with what the options change.
func (g *gate) ask(t *testing.T, ctx context.Context, opts ...change) (*authv3.CheckResponse, error) {
	t.Helper()
	h := &authv3.AttributeContext_HttpRequest{
		Method: "POST", Path: "/v1/chat/completions", RawBody: []byte(`{"model":"cheap","messages":[]}`),
		Headers: map[string]string{"x-request-id": "r-1", "authorization": "Bearer " + g.key, "content-type": "application/json"},
	}
	for _, o := range opts {
		o(h)
	}
	return g.over(t, ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: h}}})
}

// over asks as Envoy does, over HTTP or by the message's wire form. On headers alone it never asks over HTTP.
func (g *gate) over(t *testing.T, ctx context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	t.Helper()
	if g.overHTTP && !headOnly(ctx) {
		return g.byHTTP(t, ctx, req)
	}
	return g.byWire(t, ctx, req)
}

// byWire asks by the wire form, and spoils that as soon as the answer is there: nobody may have kept any of it.
func (g *gate) byWire(t *testing.T, ctx context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	t.Helper()
	wire, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{}
	if err := r.FromWire(mem.BufferSlice{mem.SliceBuffer(wire)}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		r.Free()
		spoil(wire)
	}()
	return g.Check(ctx, r)
}

func spoil(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}

func set(name, value string) change {
	return func(h *authv3.AttributeContext_HttpRequest) { h.Headers[name] = value }
}

func body(text string) change {
	return func(h *authv3.AttributeContext_HttpRequest) { h.RawBody = []byte(text) }
}

func at(method, path string) change {
	return func(h *authv3.AttributeContext_HttpRequest) { h.Method, h.Path = method, path }
}

func head() context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(envoy.CheckKey, envoy.CheckHead))
}

// denial asserts a refusal in OpenAI's words.
func denial(t *testing.T, resp *authv3.CheckResponse, status int, code string) {
	t.Helper()
	d := resp.GetDeniedResponse()
	if d == nil || resp.GetStatus().GetCode() == int32(codes.OK) {
		t.Fatalf("not denied: %v", resp)
	}
	var b struct {
		Error struct{ Code, Type, Message string }
	}
	if err := json.Unmarshal([]byte(d.GetBody()), &b); err != nil {
		t.Fatalf("body %q: %v", d.GetBody(), err)
	}
	if int(d.GetStatus().GetCode()) != status || b.Error.Code != code || b.Error.Message == "" {
		t.Errorf("denied with %d %+v, want %d %s", d.GetStatus().GetCode(), b.Error, status, code)
	}
}
