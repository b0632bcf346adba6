package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func TestEveryAlgorithm(t *testing.T) {
	s := trusting(t, allKeys(t))
	for alg, key := range map[string]string{
		"RS256": "rsa", "RS384": "rsa", "RS512": "rsa", "PS256": "rsa", "PS384": "rsa", "PS512": "rsa",
		"ES256": "p256", "ES384": "p384", "ES512": "p521", "EdDSA": "ed",
	} {
		token := issue(t, alg, key, with("sub", "alice-"+alg), nil)
		for range 2 { // the second from memory
			got, err := s.Verify(token, noon)
			if err != nil || got.Issuer != "corp" || got.Subject != "alice-"+alg || got.Team != "research" || got.Models != nil ||
				!got.Expires.Equal(noon.Add(time.Hour)) {
				t.Errorf("%s: %+v, %v", alg, got, err)
			}
		}
		// One bit of the signature.
		head, tail := token[:len(token)-10], token[len(token)-10:]
		bad := head + map[bool]string{true: "B", false: "A"}[tail[0] == 'A'] + tail[1:]
		if _, err := s.Verify(bad, noon); !errors.Is(err, ErrToken) {
			t.Errorf("%s: a changed signature: %v", alg, err)
		}
	}
}

func TestHostileTokens(t *testing.T) {
	rsaPublic := issuerKeys()["rsa"].Public().(*rsa.PublicKey)
	hmacWithPublic := jwt.NewWithClaims(jwt.SigningMethodHS256, goodClaims())
	hmacWithPublic.Header["kid"] = "rsa"
	confused, err := hmacWithPublic.SignedString(rsaPublic.N.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, goodClaims()).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	foreign := jwt.NewWithClaims(jwt.SigningMethodEdDSA, goodClaims())
	maps.Copy(foreign.Header, map[string]any{"kid": "ed", "jwk": jwkOf("ed", stranger.Public()), "jku": "https://evil", "x5u": "https://evil"})
	brought, err := foreign.SignedString(stranger)
	if err != nil {
		t.Fatal(err)
	}
	good := issue(t, "EdDSA", "ed", goodClaims(), nil)
	s := trusting(t, allKeys(t))
	for name, c := range map[string]struct{ token, says string }{
		"empty":                      {"", "not a JWT"},
		"one of ours":                {"sk-sg-abc", "not a JWT"},
		"encrypted":                  {"a.b.c.d.e", "not a JWT"},
		"padded":                     {good + "=", "not a JWT"},
		"huge":                       {good + strings.Repeat("A", maxToken), "longer than"},
		"alg none":                   {unsigned, "signature or algorithm"},
		"public key as a secret":     {confused, "signature or algorithm"},
		"its own key":                {brought, "signature or algorithm"},
		"unknown alg":                {base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"XX"}`)) + good[strings.Index(good, "."):], "signature or algorithm"},
		"RSA key for ECDSA":          {issue(t, "ES256", "p256", goodClaims(), map[string]any{"kid": "rsa"}), "no such key"},
		"another curve":              {issue(t, "ES384", "p384", goodClaims(), map[string]any{"kid": "p256"}), "no such key"},
		"unknown kid":                {issue(t, "EdDSA", "ed", goodClaims(), map[string]any{"kid": "other"}), "no such key"},
		"kid a number":               {issue(t, "EdDSA", "ed", goodClaims(), map[string]any{"kid": 7}), "not a text"},
		"kid empty":                  {issue(t, "EdDSA", "ed", goodClaims(), map[string]any{"kid": ""}), "not a text"},
		"critical":                   {issue(t, "EdDSA", "ed", goodClaims(), map[string]any{"crit": []string{"exp"}}), "critical"},
		"unknown issuer":             {issue(t, "EdDSA", "ed", with("iss", "https://evil"), nil), "unknown issuer"},
		"no issuer":                  {issue(t, "EdDSA", "ed", with("iss", nil), nil), "no issuer"},
		"issuer a list":              {issue(t, "EdDSA", "ed", with("iss", []string{corp.Issuer}), nil), "no issuer"},
		"other audience":             {issue(t, "EdDSA", "ed", with("aud", "billing"), nil), "another audience"},
		"no audience":                {issue(t, "EdDSA", "ed", with("aud", nil), nil), "another audience"},
		"audience of numbers":        {issue(t, "EdDSA", "ed", with("aud", []int{1}), nil), "no audience"},
		"expired":                    {issue(t, "EdDSA", "ed", with("exp", noon.Add(-clientSkew-time.Second).Unix()), nil), "expired"},
		"expired, another signed":    {resigned(issue(t, "EdDSA", "ed", with("exp", noon.Add(-time.Hour).Unix()), nil), good), "signature or algorithm"},
		"no end":                     {issue(t, "EdDSA", "ed", with("exp", nil), nil), "no end"},
		"end a text":                 {issue(t, "EdDSA", "ed", with("exp", "never"), nil), "no end"},
		"from the future":            {issue(t, "EdDSA", "ed", with("iat", noon.Add(time.Hour).Unix()), nil), "not valid yet"},
		"not before":                 {issue(t, "EdDSA", "ed", with("nbf", noon.Add(time.Hour).Unix()), nil), "not valid yet"},
		"no subject":                 {issue(t, "EdDSA", "ed", with("sub", nil), nil), "no subject"},
		"subject empty":              {issue(t, "EdDSA", "ed", with("sub", ""), nil), "no subject"},
		"subject endless":            {issue(t, "EdDSA", "ed", with("sub", strings.Repeat("a", maxSubject+1)), nil), "no subject"},
		"no team":                    {issue(t, "EdDSA", "ed", with("team", nil), nil), "for the team"},
		"team a list":                {issue(t, "EdDSA", "ed", with("team", []string{"research"}), nil), "for the team"},
		"models a number":            {issue(t, "EdDSA", "ed", with("models", 7), nil), "for models"},
		"models of numbers":          {issue(t, "EdDSA", "ed", with("models", []int{7}), nil), "for models"},
		"claims null":                {sign0(t, `{"alg":"EdDSA","kid":"ed"}`, `null`), "no issuer"},
		"claims a list":              {sign0(t, `{"alg":"EdDSA","kid":"ed"}`, `[]`), "not a JWT"},
		"alg in another case":        {sign0(t, `{"alg":"eddsa","kid":"ed"}`, `{}`), "signature or algorithm"},
		"no kid, several keys may":   {issue(t, "RS256", "rsa", with("iss", "x"), map[string]any{"kid": nil}), "unknown issuer"},
		"two headers in one segment": {sign0(t, `{"alg":"EdDSA","kid":"ed"}{}`, `{}`), "not a JWT"},
	} {
		_, err := s.Verify(c.token, noon)
		if !errors.Is(err, ErrToken) || errors.Is(err, ErrNoKeys) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
		// Only who has had a good token learns that it is over.
		if expired := errors.Is(err, ErrTokenExpired); expired != (name == "expired") {
			t.Errorf("%s: told as expired: %v", name, expired)
		}
		if err != nil && strings.Contains(err.Error(), "evil") {
			t.Errorf("%s: the error repeats what the client wrote: %v", name, err)
		}
	}
	if _, err := s.Verify(good, noon); err != nil {
		t.Error(err)
	}
}

// resigned is a token with another's signature.
func resigned(token, other string) string {
	return token[:strings.LastIndex(token, ".")] + other[strings.LastIndex(other, "."):]
}

func TestModelsOfAClaim(t *testing.T) {
	s := trusting(t, allKeys(t))
	for name, c := range map[string]struct {
		claim any
		want  []string
	}{
		"none": {nil, nil}, "list": {[]string{"a", "b*"}, []string{"a", "b*"}}, "text": {" a  b ", []string{"a", "b"}},
		"empty list": {[]string{}, []string{}}, "empty text": {"", []string{}},
	} {
		got, err := s.Verify(issue(t, "EdDSA", "ed", with("models", c.claim), nil), noon)
		if err != nil || fmt.Sprint(got.Models) != fmt.Sprint(c.want) || (got.Models == nil) != (c.want == nil) {
			t.Errorf("%s: %#v, %v", name, got.Models, err)
		}
	}
	quiet := corp
	quiet.ModelsClaim = ""
	got, err := trusting(t, allKeys(t), quiet).Verify(issue(t, "EdDSA", "ed", with("models", "a"), nil), noon)
	if err != nil || got.Models != nil {
		t.Errorf("a claim that nobody asked for: %#v, %v", got.Models, err)
	}
}

func TestNoKidNeedsTheOnlyKey(t *testing.T) {
	token := issue(t, "EdDSA", "ed", goodClaims(), map[string]any{"kid": nil})
	ed, other := jwkOf("ed", issuerKeys()["ed"].Public()), jwkOf("other", issuerKeys()["ed"].Public())
	if _, err := trusting(t, keySet(t, ed, jwkOf("rsa", issuerKeys()["rsa"].Public()))).Verify(token, noon); err != nil {
		t.Errorf("the only key that fits: %v", err)
	}
	if _, err := trusting(t, keySet(t, ed, other)).Verify(token, noon); !errors.Is(err, ErrToken) {
		t.Errorf("two keys fit: %v", err)
	}
	named := issue(t, "EdDSA", "ed", goodClaims(), nil)
	if _, err := trusting(t, keySet(t, ed, ed)).Verify(named, noon); !errors.Is(err, ErrToken) {
		t.Errorf("two keys of one name: %v", err)
	}
}

func TestIssuersDifferByAudience(t *testing.T) {
	second := corp
	second.Name, second.Audience = "second", "elsewhere"
	s := trusting(t, allKeys(t), corp, second)
	for aud, want := range map[string]string{"spokegate": "corp", "elsewhere": "second"} {
		got, err := s.Verify(issue(t, "EdDSA", "ed", with("aud", []string{"x", aud}), nil), noon)
		if err != nil || got.Issuer != want {
			t.Errorf("%s: %+v, %v", aud, got, err)
		}
	}
	if _, err := s.Verify(issue(t, "EdDSA", "ed", with("aud", []string{"spokegate", "elsewhere"}), nil), noon); !errors.Is(err, ErrToken) {
		t.Errorf("for both: %v", err)
	}
}

// TestWhatIsTrustedChanges: memory of a token never outlives its end, its key or its issuer.
func TestWhatIsTrustedChanges(t *testing.T) {
	s := &Issuers{}
	token := issue(t, "EdDSA", "ed", goodClaims(), nil)
	want := func(step string, kind error, at time.Time) {
		t.Helper()
		if _, err := s.Verify(token, at); !errors.Is(err, kind) {
			t.Errorf("%s: got %v, want %v", step, err, kind)
		}
	}
	want("no issuer", ErrToken, noon)
	s.SetIssuers([]IssuerConfig{corp})
	want("no keys yet", ErrNoKeys, noon)
	s.SetKeys(corp, allKeys(t))
	want("trusted", nil, noon)
	want("just before its end", nil, noon.Add(time.Hour+clientSkew-time.Second))
	want("after its end", ErrToken, noon.Add(time.Hour+clientSkew))
	missing := s.Missing(corp)
	s.SetKeys(corp, keySet(t, jwkOf("rsa", issuerKeys()["rsa"].Public())))
	want("its key is withdrawn", ErrToken, noon)
	<-missing // the reader of the keys hears of it
	s.SetKeys(corp, allKeys(t))
	want("its key is back", nil, noon)
	s.SetIssuers([]IssuerConfig{corp})
	want("the same policy again", nil, noon)
	renamed := corp
	renamed.TeamClaim = "sub"
	s.SetIssuers([]IssuerConfig{renamed})
	want("another issuer without keys", ErrNoKeys, noon)
	s.SetKeys(corp, allKeys(t)) // late, for an issuer that is gone
	want("still without keys", ErrNoKeys, noon)
	if s.Missing(corp) != nil {
		t.Error("an issuer that is gone still asks for keys")
	}
	s.SetIssuers(nil)
	want("no issuer again", ErrToken, noon)
}

func TestMemoryOfTokensIsBounded(t *testing.T) {
	var c tokenCache
	for i := range 3*maxRemembered + 1 {
		c.put([32]byte{byte(i), byte(i >> 8)}, verified{})
		if _, ok := c.get([32]byte{}); !ok {
			t.Fatal("a token in use was forgotten")
		}
	}
	if n := len(c.young) + len(c.old); n > 2*maxRemembered {
		t.Fatalf("%d are remembered", n)
	}
}

func BenchmarkVerifyClient(b *testing.B) {
	s := trusting(b, allKeys(b))
	token := issue(b, "RS256", "rsa", goodClaims(), nil)
	b.Run("remembered", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Verify(token, noon); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := verifyToken(s.list, token, noon); err != nil {
				b.Fatal(err)
			}
		}
	})
}
