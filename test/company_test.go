package test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// company is an installation behind one trusted proxy, u.idp signs JWTs for its people, and some of its keys are to be
// revoked. What a client is, it says by itself: see from.
func company(t *testing.T) *up {
	return lab.use(t, "company", func() upOptions {
		p := newIDP(t, filepath.Join(lab.temp, "company-jwks.json"))
		return upOptions{policy: companyPolicy(p.path, "cut"), picker: "ext_proc", workers: 1, rates: ratesFile(t),
			more:  []string{"-trusted-hops", "1", "-envoy-threads", "1"},
			after: func(u *up) error { u.idp = p; return nil }}
	})
}

func companyPolicy(jwks, onRevoke string) *policyText {
	const issuer = `issuer: "https://id.example.com", jwks_file: `
	return newPolicy(`
platform: {on_revoke: `+onRevoke+`}
endpoints: [{name: sim}]
models:
  - {name: cheap, endpoint: sim}
  - {name: dear, endpoint: sim}
teams:
  - {name: t1, models: ["*"]}
  - {name: t2, models: ["*"]}
  - {name: crew, models: [cheap], limits: [{requests_per_day: 3}]}
issuers:
  - {name: corp, audience: door, `+issuer+jwks+`, models_claim: models, teams: [t1]}
  - {name: crews, audience: crews, `+issuer+jwks+`, team_claim: group, limits: [{requests_per_day: 2}]}
`, map[string]string{
		"office":   "team: t1, networks: [203.0.113.0/24, \"2001:db8::/32\"]",
		"inside":   "team: t1, networks: [10.0.0.0/8]",
		"gone":     "team: t1",
		"stays":    "team: t1",
		"finishes": "team: t1",
		"neighbor": "team: t1, limits: [{requests_per_day: 100}]",
	})
}

// from is what the proxy says of a client.
func from(address string) field { return field{"x-forwarded-for", address} }

var strangers atomic.Uint32

// fromStranger is a client whom nobody has seen yet: who sends wrong keys is slowed by address.
func fromStranger() field {
	n := strangers.Add(1)
	return from(fmt.Sprintf("198.18.%d.%d", n>>8&255, n&255))
}

// idp is a company that signs JWTs for its people, and publishes its keys in a file.
type idp struct {
	path string

	mu   sync.Mutex
	keys map[string]crypto.Signer // by kid
}

func newIDP(t testing.TB, path string) *idp {
	t.Helper()
	p := &idp{path: path, keys: map[string]crypto.Signer{}}
	var err error
	if p.keys["rsa"], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if p.keys["p256"], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	p.add(t, "ed")
	return p
}

// add publishes one more key, of Ed25519.
func (p *idp) add(t testing.TB, kid string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.change(t, func(keys map[string]crypto.Signer) { keys[kid] = key })
}

// withdraw publishes one key less.
func (p *idp) withdraw(t testing.TB, kid string) {
	t.Helper()
	p.change(t, func(keys map[string]crypto.Signer) { delete(keys, kid) })
}

func (p *idp) change(t testing.TB, change func(map[string]crypto.Signer)) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.keys)
	set := map[string][]map[string]any{}
	for _, kid := range slices.Sorted(maps.Keys(p.keys)) {
		set["keys"] = append(set["keys"], published(t, kid, p.keys[kid].Public()))
	}
	text, err := json.Marshal(set)
	if err == nil {
		err = os.WriteFile(p.path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(p.path+".new", p.path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// published is a key as RFC 7517 wants it.
func published(t testing.TB, kid string, key crypto.PublicKey) map[string]any {
	t.Helper()
	enc := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": enc(k.N.Bytes()), "e": enc(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"kty": "EC", "kid": kid, "use": "sig", "crv": "P-256", "x": enc(point[1:33]), "y": enc(point[33:])}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "kid": kid, "use": "sig", "crv": "Ed25519", "x": enc(k)}
	}
	t.Fatalf("a key of type %T", key)
	return nil
}

// claims of alice, with changes; nil takes a claim out.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{"iss": "https://id.example.com", "aud": "door", "sub": "alice", "team": "t1", "models": []string{"cheap"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range changes {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// token signs claims by the key of this name.
func (u *up) token(t testing.TB, kid string, changes jwt.MapClaims) string {
	t.Helper()
	u.idp.mu.Lock()
	key := u.idp.keys[kid]
	u.idp.mu.Unlock()
	method := jwt.SigningMethod(jwt.SigningMethodEdDSA)
	switch key.(type) {
	case *rsa.PrivateKey:
		method = jwt.SigningMethodRS256
	case *ecdsa.PrivateKey:
		method = jwt.SigningMethodES256
	}
	return u.sign(t, method, kid, key, claims(changes))
}

func (u *up) sign(t testing.TB, method jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	token.Header["kid"] = kid
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	u.policy.keep(text)
	return text
}
