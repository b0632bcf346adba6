package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// Bounds of a JWK Set.
const (
	// MaxJWKS is the longest that is read, in bytes.
	MaxJWKS     = 1 << 20
	maxJWKSKeys = 256
	leastRSA    = 2048 // bits
	mostRSA     = 8192 // a signature by a longer one costs more than a request may
)

// KeySet are an issuer's public keys. The zero value has none.
type KeySet struct {
	keys []publicKey
	// Passed over, for people: keys of the set that no token can be verified with, and why.
	Passed []string
}

// Len is how many keys can verify a token.
func (s *KeySet) Len() int { return len(s.keys) }

// publicKey is one key, and the algorithms of JWT that it fits.
type publicKey struct {
	id   string // "kid"; empty: none
	algs []string
	key  any // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// ParseJWKS reads a JWK Set (RFC 7517). Keys of kinds that are not known here, for other uses, or too weak are passed over, as
// the RFC wants; a set without any other key is an error.
func ParseJWKS(data []byte) (*KeySet, error) {
	if len(data) > MaxJWKS {
		return nil, fmt.Errorf("the key set is longer than %d bytes", MaxJWKS)
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("not a JWK Set: %w", err)
	}
	if len(doc.Keys) > maxJWKSKeys {
		return nil, fmt.Errorf("the key set has more than %d keys", maxJWKSKeys)
	}
	set := &KeySet{}
	for i, raw := range doc.Keys {
		k, err := parseJWK(raw)
		if err != nil {
			set.Passed = append(set.Passed, fmt.Sprintf("key %d: %v", i+1, err))
			continue
		}
		set.keys = append(set.keys, k)
	}
	if len(set.keys) == 0 {
		return nil, errors.Join(append([]error{errNoUsableKey}, texts(set.Passed)...)...)
	}
	return set, nil
}

var errNoUsableKey = errors.New("the key set has no key that a token can be verified with")

func texts(list []string) (errs []error) {
	for _, s := range list[:min(len(list), 5)] {
		errs = append(errs, errors.New(s))
	}
	return errs
}

// jwk are the members of a key that are read (RFC 7518 section 6, RFC 8037).
type jwk struct {
	Kty, Kid, Use, Alg, Crv string
	Ops                     []string `json:"key_ops"`
	N, E, X, Y              string
	D                       any
}

func parseJWK(raw []byte) (k publicKey, err error) {
	var j jwk
	if err := json.Unmarshal(raw, &j); err != nil {
		return k, errors.New("not a JWK")
	}
	switch {
	case j.D != nil:
		return k, errors.New("it is a private key, and must not be here")
	case j.Use != "" && j.Use != "sig", len(j.Ops) > 0 && !slices.Contains(j.Ops, "verify"):
		return k, errors.New("not for signatures")
	case len(j.Kid) > 256:
		return k, errors.New("its kid is too long")
	}
	k.id = j.Kid
	switch j.Kty {
	case "RSA":
		k.key, err = j.rsa()
		k.algs = rsaAlgs
	case "EC":
		k.key, k.algs, err = j.ec()
	case "OKP":
		k.key, err = j.okp()
		k.algs = []string{"EdDSA"}
	default:
		err = fmt.Errorf("kty %.20q is not known here", j.Kty)
	}
	if err == nil && j.Alg != "" {
		if !slices.Contains(k.algs, j.Alg) {
			return k, fmt.Errorf("alg %.20q does not fit the key", j.Alg)
		}
		k.algs = []string{j.Alg}
	}
	return k, err
}

var rsaAlgs = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}

func (j jwk) rsa() (*rsa.PublicKey, error) {
	n, ok := number(j.N)
	e, fits := number(j.E)
	if !ok || !fits {
		return nil, errors.New("n or e is not base64url")
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	switch bits := modulus.BitLen(); {
	case bits < leastRSA || bits > mostRSA:
		return nil, fmt.Errorf("RSA with %d bits: want %d to %d", bits, leastRSA, mostRSA)
	case modulus.Bit(0) == 0:
		return nil, errors.New("n is even")
	case exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0:
		return nil, errors.New("e is out of range")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

// curves are those of JWT, with the one algorithm that each fits.
var curves = map[string]struct {
	curve elliptic.Curve
	alg   string
}{
	"P-256": {elliptic.P256(), "ES256"},
	"P-384": {elliptic.P384(), "ES384"},
	"P-521": {elliptic.P521(), "ES512"},
}

func (j jwk) ec() (*ecdsa.PublicKey, []string, error) {
	c, known := curves[j.Crv]
	if !known {
		return nil, nil, fmt.Errorf("crv %.20q is not known here", j.Crv)
	}
	size := (c.curve.Params().BitSize + 7) / 8
	x, okX := number(j.X)
	y, okY := number(j.Y)
	if !okX || !okY || len(x) != size || len(y) != size {
		return nil, nil, fmt.Errorf("x and y: want %d bytes each, in base64url", size)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(c.curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, nil, errors.New("the point is not on the curve")
	}
	return key, []string{c.alg}, nil
}

func (j jwk) okp() (ed25519.PublicKey, error) {
	x, ok := number(j.X)
	if j.Crv != "Ed25519" || !ok || len(x) != ed25519.PublicKeySize {
		return nil, errors.New("want crv Ed25519, and x of 32 bytes in base64url")
	}
	return ed25519.PublicKey(x), nil
}

// number decodes base64url without padding, as keys are written.
func number(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return b, err == nil && len(b) > 0
}

// find is the one key for a token's kid and algorithm. A token without kid may use the only key that fits. Nil: there is no
// such key, or more than one: trying several would let a signer of one pass for another.
func (s *KeySet) find(id, alg string) any {
	var found any
	for _, k := range s.keys {
		if (id != "" && k.id != id) || !slices.Contains(k.algs, alg) {
			continue
		}
		if found != nil {
			return nil
		}
		found = k.key
	}
	return found
}
