package test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/spokegate/spokegate/usage"
)

const cheapToken = `{"model":"cheap","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`

// asks sends one request with a credential, as somebody whom nobody has seen yet.
func (u *up) asks(t testing.TB, credential string) reply {
	t.Helper()
	return u.do(t, post(credential, "/v1/chat/completions", cheapToken, fromStranger()))
}

func TestJWT(t *testing.T) {
	t.Parallel()
	u := company(t)
	for _, kid := range []string{"rsa", "p256", "ed"} {
		t.Run("signed by "+kid, func(t *testing.T) {
			r := u.asks(t, u.token(t, kid, nil))
			if r.status != http.StatusOK {
				t.Fatal(r)
			}
			rec := u.ledger.usage(t, r.admission())
			if rec.GetKey() != "corp:alice" || rec.GetTeam() != "t1" || rec.GetModel() != "cheap" || rec.GetOutcome() != usage.OutcomeComplete {
				t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
			}
		})
	}
	t.Run("as x-api-key", func(t *testing.T) {
		u.ok(t, call{method: "GET", target: "/v1/models", fields: []field{{"x-api-key", u.token(t, "p256", nil)}, fromStranger()}})
	})
	t.Run("refused", u.jwtRefused)
	t.Run("models", u.jwtModels)
	t.Run("limits", u.jwtLimits)
	t.Run("keys change", u.jwtKeysChange)
}

// jwtRefused tries what is no credential. All get the same answer, but that one whose time is over is told so.
func (u *up) jwtRefused(t *testing.T) {
	u.idp.mu.Lock()
	rsaKey := u.idp.keys["rsa"].(*rsa.PrivateKey)
	u.idp.mu.Unlock()
	public, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := rsa.GenerateKey(nil, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := u.token(t, "rsa", nil)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	bare := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"rsa"}`))
	for name, token := range map[string]string{
		"expired":                         u.token(t, "rsa", jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"without an end":                  u.token(t, "rsa", jwt.MapClaims{"exp": nil}),
		"not valid yet":                   u.token(t, "rsa", jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
		"for another audience":            u.token(t, "rsa", jwt.MapClaims{"aud": "shop"}),
		"for no audience":                 u.token(t, "p256", jwt.MapClaims{"aud": nil}),
		"of another issuer":               u.token(t, "rsa", jwt.MapClaims{"iss": "https://evil.example.com"}),
		"about nobody":                    u.token(t, "rsa", jwt.MapClaims{"sub": nil}),
		"of no team":                      u.token(t, "rsa", jwt.MapClaims{"team": nil}),
		"of a team that nobody has":       u.token(t, "rsa", jwt.MapClaims{"team": "nobody"}),
		"of a team that it may not name":  u.token(t, "rsa", jwt.MapClaims{"team": "t2"}),
		"with models that are none":       u.token(t, "rsa", jwt.MapClaims{"models": 7}),
		"signed by nobody":                none + "." + body + ".",
		"of alg none, and signed":         none + "." + body + "." + signature,
		"signed with the public key":      u.sign(t, jwt.SigningMethodHS256, "rsa", public, claims(nil)),
		"signed by a stranger":            u.sign(t, jwt.SigningMethodRS256, "rsa", stranger, claims(nil)),
		"signed by a key that is not his": u.sign(t, jwt.SigningMethodRS256, "p256", rsaKey, claims(nil)),
		"with another head":               bare + "." + body + "." + signature,
		"with another signature":          head + "." + body + "." + strings.ToUpper(signature),
		"without a signature":             head + "." + body + ".",
		"cut":                             good[:len(good)-4],
		"and more":                        good + "A",
		"twice":                           good + "," + good,
	} {
		r := u.asks(t, token)
		if err := checkRefusal(r, "", "invalid_api_key"); err != nil || r.status != http.StatusUnauthorized {
			t.Errorf("%s: %v in %v", name, err, r)
		}
		if told := strings.Contains(r.header.Get("Www-Authenticate"), `error_description="the token has expired"`); told != (name == "expired") {
			t.Errorf("%s: told that it expired: %v in %v", name, told, r)
		}
		u.ledger.refused(r.admission())
	}
}

// jwtModels: a claim narrows what the team may use, and never widens it.
func (u *up) jwtModels(t *testing.T) {
	for _, c := range []struct {
		models      any
		cheap, dear int
		listed      string
	}{
		{[]string{"cheap"}, 200, 403, "cheap"},
		{[]string{"*"}, 200, 200, "cheap dear"},
		{"cheap dear", 200, 200, "cheap dear"},
		{[]string{"de*", "gpt-17"}, 403, 200, "dear"},
		{[]string{}, 403, 403, ""},
		{nil, 403, 403, ""},
	} {
		token := u.token(t, "p256", jwt.MapClaims{"models": c.models})
		for model, want := range map[string]int{"cheap": c.cheap, "dear": c.dear} {
			r := u.do(t, post(token, "/v1/chat/completions", strings.Replace(cheapToken, "cheap", model, 1), fromStranger()))
			if r.status != want || want == 403 && checkRefusal(r, "", "model_not_allowed") != nil {
				t.Errorf("the claim %v and %s: want %d, got %v", c.models, model, want, r)
			}
		}
		if got := strings.Join(u.listed(t, token), " "); got != c.listed {
			t.Errorf("the claim %v: want %q listed, got %q", c.models, c.listed, got)
		}
	}
}

// listed are the models that a credential is told of.
func (u *up) listed(t testing.TB, credential string) []string {
	t.Helper()
	r := u.ok(t, call{method: "GET", target: "/v1/models", fields: []field{{"authorization", "Bearer " + credential}, fromStranger()}})
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(r.body, &list); err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

// jwtLimits: each subject has limits of its own, and all share the team's.
func (u *up) jwtLimits(t *testing.T) {
	awayFromMidnight()
	token := func(subject string) string {
		return u.token(t, "p256", jwt.MapClaims{"aud": "crews", "sub": subject, "group": "crew", "team": nil})
	}
	passes := func(subject string) {
		t.Helper()
		if r := u.asks(t, token(subject)); r.status != http.StatusOK {
			t.Errorf("%s: %v", subject, r)
		}
	}
	usedUp := func(subject, limit string) {
		t.Helper()
		r := u.asks(t, token(subject))
		wantUsedUp(t, r)
		if !strings.Contains(string(r.body), limit) {
			t.Errorf("want to be told of %s, got %s", limit, r.body)
		}
	}
	passes("ann")
	passes("ann")
	usedUp("ann", "key crews:ann")
	passes("bob@example.com")
	usedUp("bob@example.com", "team crew")
	usedUp("cid", "team crew")
	var k keyUsage
	r := u.ok(t, call{method: "GET", target: "/v1/usage", fields: []field{{"authorization", "Bearer " + token("ann")}, fromStranger()}})
	if err := json.Unmarshal(r.body, &k); err != nil || k.Key != "crews:ann" || k.Team != "crew" || len(k.Limits) != 2 || k.Limits[0].Used != 3 || k.Limits[1].Used != 2 {
		t.Errorf("ann is told %s (%v)", r.body, err)
	}
}

// jwtKeysChange adds a key and withdraws it, and takes the file away.
func (u *up) jwtKeysChange(t *testing.T) {
	becomes := func(token string, want int) {
		t.Helper()
		eventually(t, startPatience, func() error {
			if r := u.asks(t, token); r.status != want {
				return fmt.Errorf("want %d, got %v", want, r)
			}
			return nil
		})
	}
	u.idp.add(t, "new")
	token := u.token(t, "new", nil)
	becomes(token, http.StatusOK)
	u.idp.withdraw(t, "new")
	becomes(token, http.StatusUnauthorized)
	if err := os.Rename(u.idp.path, u.idp.path+".away"); err != nil {
		t.Fatal(err)
	}
	u.opsSays(t, "/readyz", "they cannot be read anew")
	becomes(u.token(t, "rsa", jwt.MapClaims{"sub": "dora"}), http.StatusOK) // the keys of before go on
	u.idp.withdraw(t, "new")
	eventually(t, startPatience, func() error {
		if page := u.page(t, "/readyz"); strings.Contains(page, "cannot be read anew") {
			return fmt.Errorf("still %s", page)
		}
		return nil
	})
}
