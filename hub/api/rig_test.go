package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/hub"
)

// rig is the API over a hub with a database of SQLite, whose every answer is held against openapi.json.
type rig struct {
	t      *testing.T
	hub    *hub.Hub
	server *Server
	http   *httptest.Server
	log    *logged
	tokens map[hub.Role]string
	schema validator
}

// firstPolicy is what a rig begins with, as revision 1.
const firstPolicy = `
endpoints: [{name: sim}]
models: [{name: small, endpoint: sim}, {name: org/large, endpoint: sim, limits: [{requests_per_second: 100}]}]
teams:
  - {name: research, models: ["*"], limits: [{requests_per_second: 50, burst: 100}]}
  - {name: web, models: [small]}
keys:
  - {id: alice, team: research, sha256: "adcff5304c82c314a545132f582743dc0156ca6808ca664633eb0684eaf6dd2a"}
  - {id: shop, team: web, sha256: "8c74598b7e84e122a1aae8b9e16ee681d63c5b93902696e7aa925c0860e5e920"}
issuers: [{name: company, issuer: "https://id.example.com/", audience: spokegate, jwks_url: "https://id.example.com/jwks"}]
`

var root = hub.Actor{Name: "test", Role: hub.RoleAdmin}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, log: &logged{}, tokens: map[hub.Role]string{}}
	reg := prometheus.NewPedanticRegistry()
	log := slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if r.hub, err = hub.Open(t.Context(), hub.Config{Database: filepath.Join(t.TempDir(), "hub.db"), Log: log, Reg: reg, Poll: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.hub.Import(t.Context(), hub.Commit{Actor: root, Message: "first"}, hub.Import{File: "first.yaml", YAML: []byte(firstPolicy), Spoke: "local"}); err != nil {
		t.Fatal(err)
	}
	for role, teams := range map[hub.Role][]string{hub.RoleAdmin: nil, hub.RoleAuditor: nil, hub.RoleTeamOwner: {"research"}} {
		_, secret, err := r.hub.CreateToken(t.Context(), hub.Commit{Actor: root}, hub.Token{Name: string(role), Role: role, Teams: teams})
		if err != nil {
			t.Fatal(err)
		}
		r.tokens[role] = secret
	}
	held := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	r.server = New(Config{Hub: r.hub, Log: log, Registerer: reg, Now: func() time.Time { return held },
		Replicas: func() []Replica {
			return []Replica{{Spoke: "local", Door: "door-1", Connected: true, Since: held, Revision: 1, HeldSince: &held, Refused: 2, Reason: "no"}}
		},
		Used: func(wanted func(level, owner string) bool) (list []Use) {
			for _, u := range []Use{{Level: "team", Owner: "web", Kind: "tokens_per_day", Start: held, Used: 7},
				{Level: "team", Owner: "research", Kind: "tokens_per_day", Start: held, Used: 5}, {Level: "key", Owner: "shop", Kind: "tokens_per_day", Start: held, Used: 7}} {
				if wanted(u.Level, u.Owner) {
					list = append(list, u)
				}
			}
			return list
		}})
	r.http = httptest.NewServer(r.server.Handler())
	t.Cleanup(func() {
		r.http.Close()
		if err := r.hub.Close(); err != nil {
			t.Error(err)
		}
		for role, secret := range r.tokens {
			if strings.Contains(r.log.String(), secret) {
				t.Errorf("the log has the token of the %s", role)
			}
		}
	})
	r.schema.document = parsedJSON(t, r.server.openapi).(map[string]any)
	return r
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func parsedJSON(t *testing.T, data []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return v
}

// response is an answer that was read.
type response struct {
	status int
	header http.Header
	text   string
}

func (r response) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.text), v); err != nil {
		t.Fatalf("%v in %s", err, r.text)
	}
}

// problem is the answer as one.
func (r response) problem(t *testing.T) (p Problem) {
	t.Helper()
	r.into(t, &p)
	return p
}

// as asks with a role's token; headers are "name: value". A body that is not empty is JSON, unless a header says otherwise.
func (r *rig) as(role hub.Role, method, path, body string, headers ...string) response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token := r.tokens[role]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		if name, value, is := strings.Cut(h, ": "); is {
			req.Header.Set(name, value)
		}
	}
	res, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode == http.StatusInternalServerError {
		r.t.Errorf("%s %s failed; the log: %s", method, path, r.log)
	}
	out := response{res.StatusCode, res.Header, string(text)}
	r.describes(method, req.URL.EscapedPath(), out)
	if out.status < 300 && req.Header.Get("Content-Type") == "application/json" {
		wanted := r.operation(method, req.URL.EscapedPath())["requestBody"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)
		r.fits(wanted["schema"], "the body of "+method+" "+path, body)
	}
	return out
}

func (r *rig) admin(method, path, body string, headers ...string) response {
	r.t.Helper()
	return r.as(hub.RoleAdmin, method, path, body, headers...)
}

// wants an answer's status.
func (r response) wants(t *testing.T, status int) response {
	t.Helper()
	if r.status != status {
		t.Fatalf("want status %d, got %d: %s", status, r.status, r.text)
	}
	return r
}

// describes wants that openapi.json describes an answer.
func (r *rig) describes(method, path string, got response) {
	r.t.Helper()
	if got.header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s %s: no request id", method, path)
	}
	kind := got.header.Get("Content-Type")
	if got.status >= 400 {
		if kind != "application/problem+json" {
			r.t.Errorf("%s %s: %d is of type %q", method, path, got.status, kind)
		} else if method != http.MethodHead {
			r.fits(map[string]any{"$ref": "#/components/schemas/Problem"}, method+" "+path, got.text)
		}
		return
	}
	op := r.operation(method, path)
	if op == nil {
		r.t.Errorf("%s %s is not described", method, path)
		return
	}
	answers := op["responses"].(map[string]any)
	answer, known := answers[strconv.Itoa(got.status)].(map[string]any)
	if !known {
		r.t.Errorf("%s %s: the status %d is not described", method, path, got.status)
		return
	}
	content, has := answer["content"].(map[string]any)
	switch {
	case !has && got.text != "":
		r.t.Errorf("%s %s: want no body, got %s", method, path, got.text)
	case has && content[kind] == nil:
		r.t.Errorf("%s %s: the type %q is not described", method, path, kind)
	case has && kind == "application/json" && method != http.MethodHead:
		r.fits(content[kind].(map[string]any)["schema"], method+" "+path, got.text)
	}
}

func (r *rig) fits(schema any, what, text string) {
	r.t.Helper()
	if err := r.schema.check(schema, parsedJSON(r.t, []byte(text)), what); err != nil {
		r.t.Errorf("%v\nin %s", err, text)
	}
}

// operation finds what the document says of a path.
func (r *rig) operation(method, path string) map[string]any {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for template, item := range r.schema.document["paths"].(map[string]any) {
		if !matchesTemplate(template, path) {
			continue
		}
		if op, has := item.(map[string]any)[strings.ToLower(method)].(map[string]any); has {
			return op
		}
	}
	return nil
}

func matchesTemplate(template, path string) bool {
	t, p := strings.Split(template, "/"), strings.Split(path, "/")
	if len(t) != len(p) {
		return false
	}
	for i := range t {
		if t[i] != p[i] && !strings.HasPrefix(t[i], "{") {
			return false
		}
	}
	return true
}
