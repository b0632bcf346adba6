package test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// idp is a company that signs JWTs for its people, and publishes its key in a file.
type idp struct {
	path string
	kid  string
	key  ed25519.PrivateKey
}

// rotate takes another key, and publishes only that.
func (p *idp) rotate(t *testing.T) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.kid, p.key = p.kid+"x", key
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, p.kid, base64.RawURLEncoding.EncodeToString(public))
	if err := os.WriteFile(p.path+".new", []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.path+".new", p.path); err != nil {
		t.Fatal(err)
	}
}

func (p *idp) token(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{"iss": "https://id.example.com", "aud": "door", "sub": "alice", "team": "t1", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, all)
	token.Header["kid"] = p.kid
	text, err := token.SignedString(p.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// companyUp is an installation behind one trusted proxy, with an issuer, and a key for one network.
func companyUp(t *testing.T) (*up, *idp) {
	t.Helper()
	p := &idp{path: filepath.Join(t.TempDir(), "jwks.json"), kid: "k"}
	p.rotate(t)
	u := ownUp(t, "company", upOptions{workers: 1, more: []string{"-trusted-hops", "1", "-envoy-threads", "1"}, policy: newPolicy(`
endpoints: [{name: sim}]
models: [{name: cheap, endpoint: sim}, {name: dear, endpoint: sim}]
teams: [{name: t1, models: ["*"]}, {name: t2, models: ["*"]}]
issuers:
  - {name: corp, issuer: "https://id.example.com", audience: door, jwks_file: `+p.path+`, models_claim: models, teams: [t1]}
`, map[string]string{"office": "team: t1, networks: [203.0.113.0/24]"})})
	return u, p
}

func TestCompany(t *testing.T) {
	t.Parallel()
	u, p := companyUp(t)
	answers := func(want int, key string, more ...field) error {
		ctx, cancel := context.WithTimeout(context.Background(), callPatience)
		defer cancel()
		r, err := sendHTTP1(ctx, u.listen, post(key, "/v1/chat/completions", `{"model":"cheap","max_tokens":1,"messages":[]}`, more...))
		if err == nil && r.status != want {
			err = fmt.Errorf("want %d, got %v", want, r)
		}
		return err
	}
	wants := func(t *testing.T, what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	models := jwt.MapClaims{"models": []string{"ch*"}}

	t.Run("a token stands for a key", func(t *testing.T) {
		if err := within(startPatience, func() error { return answers(200, p.token(t, models)) }); err != nil {
			t.Fatal(err)
		}
		r := u.ok(t, get(p.token(t, models), "/v1/models"))
		if !strings.Contains(string(r.body), "cheap") || strings.Contains(string(r.body), "dear") {
			t.Errorf("it may use %s", r.body)
		}
		r = u.ok(t, post(p.token(t, models), "/v1/chat/completions", `{"model":"cheap","max_tokens":1,"messages":[]}`))
		if rec := u.ledger.usage(t, r.admission()); rec.GetKey() != "corp:alice" || rec.GetTeam() != "t1" {
			t.Errorf("recorded as %s of %s", rec.GetKey(), rec.GetTeam())
		}
		for what, claims := range map[string]jwt.MapClaims{
			"expired": {"models": "cheap", "exp": time.Now().Add(-time.Hour).Unix()}, "for others": {"models": "cheap", "aud": "shop"},
			"of others": {"models": "cheap", "iss": "https://evil.example.com"}, "for a team that it may not name": {"models": "cheap", "team": "t2"},
		} {
			wants(t, what, answers(401, p.token(t, claims)))
		}
		wants(t, "without the claim that narrows", answers(403, p.token(t, nil)))
	})

	t.Run("a key that the issuer withdraws counts no more", func(t *testing.T) {
		old := p.token(t, models)
		p.rotate(t)
		wants(t, "the new key", within(startPatience, func() error { return answers(200, p.token(t, models)) }))
		wants(t, "the old key", answers(401, old))
	})

	t.Run("the client is who the proxy saw", func(t *testing.T) {
		key := u.key("office")
		for said, want := range map[string]int{"203.0.113.9": 200, "198.51.100.1, 203.0.113.9": 200, "203.0.113.9, 198.51.100.1": 403, "198.51.100.1": 403} {
			wants(t, said, answers(want, key, field{"x-forwarded-for", said}))
		}
		wants(t, "nothing said", answers(403, key))
		wants(t, "our own header", answers(403, key, field{"x-spokegate-client-address", "203.0.113.9"}, field{"x-forwarded-for", "198.51.100.1"}))
	})

	t.Run("who is revoked is cut", func(t *testing.T) {
		bob := jwt.MapClaims{"sub": "bob", "models": "cheap"}
		ctx, cancel := context.WithTimeout(t.Context(), callPatience)
		defer cancel()
		s, err := u.openStream(ctx, post(p.token(t, bob), "/v1/chat/completions", `{"model":"cheap","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"go on"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		defer s.cut()
		if err := s.until("data:", 3); err != nil || s.resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %v", s.resp.StatusCode, err)
		}
		if _, errs, code := spokegate(t, "policy", "revoke", "-dir", u.dir, "-issuer", "corp", "bob"); code != 0 {
			t.Fatal(errs)
		}
		if err := s.until(`"upstream_cut"`, 1); err != nil {
			t.Fatal(err)
		}
		if rec := u.ledger.usage(t, s.admission()); strings.Join(rec.GetAnomalies(), " ") != "revoked" {
			t.Errorf("recorded %v", rec)
		}
		wants(t, "bob", answers(401, p.token(t, bob)))
		wants(t, "alice", answers(200, p.token(t, models)))
		if line := u.page(t, "/readyz"); !strings.Contains(line, "note policy: 1 keys are revoked on this spoke alone") {
			t.Errorf("/readyz says %s", line)
		}
	})

	t.Run("an issuer that is away hurts nobody whose key is known", func(t *testing.T) {
		if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		u.opsSays(t, "/readyz", "they cannot be read anew")
		wants(t, "alice", answers(200, p.token(t, models)))
	})
}
