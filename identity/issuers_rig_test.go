package identity

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
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var corp = IssuerConfig{Name: "corp", Issuer: "https://id.example.com", Audience: "spokegate", JWKSURL: "https://x",
	TeamClaim: "team", ModelsClaim: "models"}

// issuerKeys are one key for each kind, made once: RSA takes a while.
var issuerKeys = sync.OnceValue(func() map[string]crypto.Signer {
	all := map[string]crypto.Signer{}
	var err error
	if all["rsa"], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		panic(err)
	}
	for id, c := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()} {
		if all[id], err = ecdsa.GenerateKey(c, rand.Reader); err != nil {
			panic(err)
		}
	}
	_, all["ed"], err = ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return all
})

// jwkOf writes a public key as an issuer does.
func jwkOf(id string, key crypto.PublicKey) map[string]any {
	enc := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": id, "use": "sig", "n": enc(k.N.Bytes()), "e": enc(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		half := 1 + len(point)/2
		return map[string]any{"kty": "EC", "kid": id, "crv": k.Curve.Params().Name, "x": enc(point[1:half]), "y": enc(point[half:])}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "kid": id, "crv": "Ed25519", "x": enc(k)}
	}
	panic(fmt.Sprintf("%T", key))
}

func jwks(t testing.TB, keys ...map[string]any) []byte {
	t.Helper()
	data, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func keySet(t testing.TB, keys ...map[string]any) *KeySet {
	t.Helper()
	set, err := ParseJWKS(jwks(t, keys...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// allKeys is the set with the public half of all issuerKeys.
func allKeys(t testing.TB) *KeySet {
	var list []map[string]any
	for id, k := range issuerKeys() {
		list = append(list, jwkOf(id, k.Public()))
	}
	return keySet(t, list...)
}

func goodClaims() jwt.MapClaims {
	return jwt.MapClaims{"iss": corp.Issuer, "aud": corp.Audience, "sub": "alice", "team": "research",
		"exp": noon.Add(time.Hour).Unix(), "iat": noon.Unix()}
}

func with(name string, value any) jwt.MapClaims {
	c := goodClaims()
	if value == nil {
		delete(c, name)
	} else {
		c[name] = value
	}
	return c
}

// issue signs claims as an issuer would. header changes the header; nil: it names the key.
func issue(t testing.TB, alg, key string, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(alg), claims)
	token.Header["kid"] = key
	maps.Copy(token.Header, header)
	if token.Header["kid"] == nil {
		delete(token.Header, "kid")
	}
	s, err := token.SignedString(issuerKeys()[key])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func trusting(t testing.TB, keys *KeySet, list ...IssuerConfig) *Issuers {
	s := &Issuers{}
	if len(list) == 0 {
		list = []IssuerConfig{corp}
	}
	s.SetIssuers(list)
	for _, c := range list {
		if keys != nil {
			s.SetKeys(c, keys)
		}
	}
	return s
}

// sign0 signs any header and payload with the issuer's Ed25519 key.
func sign0(t testing.TB, header, payload string) string {
	t.Helper()
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString([]byte(payload))
	return text + "." + enc.EncodeToString(ed25519.Sign(issuerKeys()["ed"].(ed25519.PrivateKey), []byte(text)))
}
