package extauthz

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// TestScenarios tells what clients see. The commands:
//
//	policy                                   YAML; "sha256: key NAME" stands for the hash of NAME's key
//	token NAME issuer= team= [models=a,b]    a JWT that the issuer vouches for
//	after DURATION                           moves the clock, which begins at 2026-03-01 12:00:00 UTC
//	ask ID [key=NAME] [times=] [path=]       the body, in which TEXT stands for prompt= bytes; without one a GET;
//	  [from=IP] [behind=IP] [encoding=] [head]   behind: what trusted proxies say; head: asked on headers alone
//	end ID prompt= completion= [cached=]     what the engine reports
//	metrics PREFIX
//
// An answer shows the status, the body, and the headers of limits, without "x-ratelimit-".
func TestScenarios(t *testing.T) { both(t, testScenarios) }

func testScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type scenario struct {
	*gate
	now      time.Time
	registry *prometheus.Registry
	secrets  map[string]string
	tokens   map[string]identity.Subject
	held     int
	picked   []string // "endpoint model" of each pick
}

func newScenario(t *testing.T) *scenario {
	g := newGate(t)
	s := &scenario{gate: g, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), registry: prometheus.NewRegistry(),
		secrets: map[string]string{}, tokens: map[string]identity.Subject{}}
	c := g.Config
	c.Now = func() time.Time { return s.now }
	c.Registerer, c.Log, c.Issuers, c.Picker = s.registry, slog.New(slog.DiscardHandler), s, s
	c.Flights = flight.New(flight.Config{Limiter: g.limiter, Journal: g.records, Now: c.Now})
	g.Server = New(c)
	g.guesses.wait = func(context.Context, time.Duration) { s.held++ }
	return s
}

// Verify is an issuer that vouches for the tokens of the scenario.
func (s *scenario) Verify(token string, _ time.Time) (identity.Subject, error) {
	switch sub, known := s.tokens[token]; {
	case known:
		return sub, nil
	case strings.HasPrefix(token, "unread."):
		return identity.Subject{}, identity.ErrNoKeys
	}
	return identity.Subject{}, identity.ErrToken
}

// Pick takes any worker, and remembers what it was asked for.
func (s *scenario) Pick(_ context.Context, _ time.Time, endpoint string, _ router.Ask, req *openai.Request, _ []byte) (router.Choice, error) {
	s.picked = append(s.picked, endpoint+" "+req.Model)
	return router.Choice{Addrs: []string{"10.0.0.1:1"}}, nil
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "policy":
		return s.setPolicy(t, d.Input)
	case "token":
		sub := identity.Subject{Subject: d.CmdArgs[0].Key, Expires: s.now.Add(time.Hour)}
		d.ScanArgs(t, "issuer", &sub.Issuer)
		d.MaybeScanArgs(t, "team", &sub.Team)
		if models, ok := d.Arg("models"); ok {
			sub.Models = models.Vals
		}
		s.secrets[sub.Subject] = "header." + sub.Subject + ".signature"
		s.tokens[s.secrets[sub.Subject]] = sub
		return ""
	case "after":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(by)
		return ""
	case "ask":
		return s.askAll(t, d)
	case "end":
		return s.end(t, d)
	case "metrics":
		return s.exposed(t, d.CmdArgs[0].Key)
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return ""
}

func (s *scenario) setPolicy(t *testing.T, text string) string {
	text = regexp.MustCompile(`sha256: key (\w+)`).ReplaceAllStringFunc(text, func(m string) string {
		name := strings.TrimPrefix(m, "sha256: key ")
		if s.secrets[name] == "" {
			s.secrets[name], _ = identity.NewKey()
		}
		h, _ := identity.ParseKey(s.secrets[name])
		return `sha256: "` + h.String() + `"`
	})
	set, err := policy.Parse("policy", []byte(text))
	if err != nil {
		return err.Error()
	}
	snap, err := policy.Compile(set, s.now)
	if err != nil {
		t.Fatal(err)
	}
	s.Policy.Store(snap)
	return ""
}

func (s *scenario) askAll(t *testing.T, d *datadriven.TestData) string {
	times := 1
	d.MaybeScanArgs(t, "times", &times)
	if times == 1 {
		return s.askOne(t, d, d.CmdArgs[0].Key)
	}
	var answers []string
	for n := range times {
		answers = append(answers, s.askOne(t, d, fmt.Sprint(d.CmdArgs[0].Key, n)))
	}
	var out strings.Builder
	for len(answers) > 0 { // equal ones in a row are told once
		same := 1
		for same < len(answers) && answers[same] == answers[0] {
			same++
		}
		fmt.Fprintf(&out, "%d× %s", same, answers[0])
		answers = answers[same:]
	}
	return out.String()
}

func (s *scenario) askOne(t *testing.T, d *datadriven.TestData, id string) string {
	path, key, from, behind, encoding, prompt := "/v1/chat/completions", "", "192.0.2.1", "", "", 0
	d.MaybeScanArgs(t, "path", &path)
	d.MaybeScanArgs(t, "key", &key)
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "behind", &behind)
	d.MaybeScanArgs(t, "encoding", &encoding)
	d.MaybeScanArgs(t, "prompt", &prompt)
	secret := s.secrets[key]
	if secret == "" {
		secret = key
	}
	body := []byte(strings.ReplaceAll(d.Input, "TEXT", strings.Repeat("word ", prompt/5)))
	h := &authv3.AttributeContext_HttpRequest{Method: "POST", Path: path, RawBody: encoded(t, encoding, body), Headers: map[string]string{
		"x-request-id": id, "authorization": "Bearer " + secret, "content-type": "application/json", "content-encoding": encoding}}
	if d.Input == "" {
		h.Method = "GET"
	}
	if behind != "" {
		h.Headers[envoy.ClientAddressHeader] = behind
	}
	if key == "" {
		delete(h.Headers, "authorization")
	}
	ctx := t.Context()
	if d.HasArg("head") {
		ctx, h.RawBody = head(), nil
	}
	s.picked, s.held = nil, 0
	resp, err := s.over(t, ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:  &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: from}}}},
		Request: &authv3.AttributeContext_Request{Http: h}}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(resp.String(), secret) && secret != "" {
		t.Errorf("the answer repeats the credential: %v", resp)
	}
	if ok := resp.GetOkResponse(); ok != nil {
		return s.admitted(t, ok) + shown(ok.GetResponseHeadersToAdd())
	}
	denied, late := resp.GetDeniedResponse(), ""
	if s.held > 0 {
		late = " (held back)"
	}
	return fmt.Sprintf("%d%s %s\n", denied.GetStatus().GetCode(), late, denied.GetBody()) + shown(denied.GetHeaders())
}

func encoded(t *testing.T, encoding string, body []byte) []byte {
	var out bytes.Buffer
	switch encoding {
	case "gzip":
		w := gzip.NewWriter(&out)
		_, _ = w.Write(body)
		_ = w.Close()
	case "zstd":
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(body)
		_ = w.Close()
	default:
		return body
	}
	return out.Bytes()
}

// admitted shows what the context, the flight and the picker were told.
func (s *scenario) admitted(t *testing.T, ok *authv3.OkHttpResponse) string {
	for _, h := range ok.GetHeaders() {
		if h.GetHeader().GetKey() != envoy.ContextHeader {
			continue
		}
		endpoint, _, _ := strings.Cut(s.picked[0], " ")
		v := identity.NewVerifier(endpoint)
		v.SetKey(s.Minter.Door(), s.Minter.PublicKey())
		c, err := v.Verify(h.GetHeader().GetValue(), s.now)
		if err != nil {
			t.Fatal(err)
		}
		r := (*s.records)[len(*s.records)-1]
		return fmt.Sprintf("admitted: key %s, team %s, model %s, asked %q, engine %q; record of %s %q; picked for %v\n",
			c.Key, c.Team, c.Model, c.Asked, c.EngineName, r.GetModel(), r.GetAskedModel(), s.picked)
	}
	return "passes\n"
}

// shown are the headers that tell of limits.
func shown(list []*corev3.HeaderValueOption) string {
	var out []string
	for _, h := range list {
		name := h.GetHeader().GetKey()
		if strings.HasPrefix(name, "x-ratelimit-") || strings.HasPrefix(name, "retry-after") || name == "x-should-retry" {
			out = append(out, fmt.Sprintf("  %s: %s\n", strings.TrimPrefix(name, "x-ratelimit-"), h.GetHeader().GetValue()))
		}
	}
	return strings.Join(out, "")
}

func (s *scenario) end(t *testing.T, d *datadriven.TestData) string {
	var u openai.Usage
	for name, to := range map[string]**int64{"prompt": &u.Prompt, "cached": &u.Cached, "completion": &u.Completion} {
		var n int64
		if d.MaybeScanArgs(t, name, &n) {
			*to = &n
		}
	}
	s.Flights.End(d.CmdArgs[0].Key, flight.Facts{Metered: &flight.Metered{Report: openai.Report{Usage: u, CountedFrom: "engine", Terminal: true}, Status: 200, SawEnd: true, At: s.now},
		Logged: &flight.Logged{Status: 200, Attempts: 1, At: s.now}})
	return ""
}

func (s *scenario) exposed(t *testing.T, prefix string) string {
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if !strings.HasPrefix(f.GetName(), prefix) || m.GetCounter() == nil {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %s: %v\n", f.GetName(), strings.Join(labels, " "), m.GetCounter().GetValue()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}
