package identity

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// changed is a key with some members set to other values; nil takes one away.
func changed(key map[string]any, members map[string]any) map[string]any {
	key = maps.Clone(key)
	maps.Copy(key, members)
	maps.DeleteFunc(key, func(_ string, v any) bool { return v == nil })
	return key
}

func TestKeysThatArePassedOver(t *testing.T) {
	r, ec, ed := jwkOf("r", issuerKeys()["rsa"].Public()), jwkOf("e", issuerKeys()["p256"].Public()), jwkOf("d", issuerKeys()["ed"].Public())
	enc := base64.RawURLEncoding.EncodeToString
	odd := append(make([]byte, 255), 1)
	odd[0] = 0x80
	weak := make([]byte, 128)
	weak[0], weak[127] = 0x80, 1
	long := make([]byte, 2048)
	long[0], long[2047] = 0x80, 1
	for name, c := range map[string]struct {
		key  map[string]any
		says string // empty: it is taken
	}{
		"RSA": {r, ""}, "EC": {ec, ""}, "Ed25519": {ed, ""},
		"RSA for one alg":  {changed(r, map[string]any{"alg": "PS384"}), ""},
		"no use":           {changed(r, map[string]any{"use": nil}), ""},
		"to verify":        {changed(r, map[string]any{"key_ops": []string{"verify"}}), ""},
		"unknown members":  {changed(r, map[string]any{"x5c": []string{"x"}, "n2": 1}), ""},
		"secret":           {map[string]any{"kty": "oct", "k": "AAAA"}, "not known here"},
		"no kty":           {changed(r, map[string]any{"kty": nil}), "not known here"},
		"private":          {changed(ed, map[string]any{"d": "AAAA"}), "private"},
		"to encrypt":       {changed(r, map[string]any{"use": "enc"}), "not for signatures"},
		"to sign only":     {changed(r, map[string]any{"key_ops": []string{"sign"}}), "not for signatures"},
		"HS256 with RSA":   {changed(r, map[string]any{"alg": "HS256"}), "does not fit"},
		"ES256 with RSA":   {changed(r, map[string]any{"alg": "ES256"}), "does not fit"},
		"weak RSA":         {changed(r, map[string]any{"n": enc(weak)}), "1024 bits"},
		"endless RSA":      {changed(r, map[string]any{"n": enc(long)}), "16384 bits"},
		"even modulus":     {changed(r, map[string]any{"n": enc(append(odd[:255:255], 2))}), "even"},
		"e of 1":           {changed(r, map[string]any{"e": "AQ"}), "out of range"},
		"e even":           {changed(r, map[string]any{"e": "BA"}), "out of range"},
		"e huge":           {changed(r, map[string]any{"e": enc(odd)}), "out of range"},
		"e missing":        {changed(r, map[string]any{"e": nil}), "base64url"},
		"n padded":         {changed(r, map[string]any{"n": "AQAB=="}), "base64url"},
		"n a number":       {changed(r, map[string]any{"n": 7}), "not a JWK"},
		"another curve":    {changed(ec, map[string]any{"crv": "secp256k1"}), "not known here"},
		"not on the curve": {changed(ec, map[string]any{"y": ec["x"]}), "not on the curve"},
		"a short x":        {changed(ec, map[string]any{"x": "AAAA"}), "32 bytes"},
		"the wrong curve":  {changed(ec, map[string]any{"crv": "P-384"}), "48 bytes"},
		"X25519":           {changed(ed, map[string]any{"crv": "X25519"}), "Ed25519"},
		"a short Ed25519":  {changed(ed, map[string]any{"x": "AAAA"}), "32 bytes"},
		"a kid too long":   {changed(ed, map[string]any{"kid": strings.Repeat("k", 300)}), "too long"},
	} {
		// Beside a good one, which is taken whatever the other is.
		set, err := ParseJWKS(jwks(t, c.key, changed(ed, map[string]any{"kid": "good"})))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if said := strings.Join(set.Passed, ";"); (c.says == "") != (said == "") || !strings.Contains(said, c.says) || set.Len()+len(set.Passed) != 2 {
			t.Errorf("%s: %d keys, passed over %q, want %q", name, set.Len(), said, c.says)
		}
		if _, err := ParseJWKS(jwks(t, c.key)); (err == nil) != (c.says == "") {
			t.Errorf("%s, alone: %v", name, err)
		}
	}
}

func TestNoKeySet(t *testing.T) {
	for _, s := range []string{"", "[]", "{}", `{"keys":7}`, `{"keys":[]}`, `{"keys":[7]}`, `{"keys":[{}]}`, "<html>",
		`{"keys":[` + strings.Repeat("{},", maxJWKSKeys) + "{}]}", strings.Repeat(" ", MaxJWKS+1)} {
		if set, err := ParseJWKS([]byte(s)); err == nil {
			t.Errorf("%.40q: %d keys", s, set.Len())
		}
	}
}

// FuzzParseJWKS: whatever is taken is a key that a signature can be checked with, by no algorithm with a shared secret.
func FuzzParseJWKS(f *testing.F) {
	for id, k := range issuerKeys() {
		f.Add(jwks(f, jwkOf(id, k.Public())))
	}
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AA"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := ParseJWKS(data)
		if err != nil {
			return
		}
		if set.Len() == 0 || !json.Valid(data) {
			t.Fatalf("taken: %q", data)
		}
		for _, k := range set.keys {
			for _, alg := range k.algs {
				if alg[0] == 'H' || alg == "none" {
					t.Fatalf("%q fits %s", data, alg)
				}
				_ = set.find(k.id, alg)
			}
		}
	})
}
