// Package identity holds what proves who somebody is: API keys, of which only the SHA-256 is ever kept; the JWTs of trusted
// issuers, which may stand in place of keys; and the trusted context, the word of a door on who a request is for, signed or with MACs.
//
// It promises that a key's text is never stored, that no JWT passes without the signature of its issuer's published key, and
// that a context is accepted by a verifier at most once. It does not know what a key may do (package policy) or how many of
// its requests may run (package limits), and reads no file and no address: package identity/jwks does.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"regexp"
	"strings"
)

// Hash is the SHA-256 of a key's secret: what policies hold and look-ups compare.
type Hash [sha256.Size]byte

const (
	keyPrefix   = "sk-sg-"
	secretBytes = 32
	sumBytes    = 4
	keyChars    = ((secretBytes+sumBytes)*8 + 4) / 5 // of base32
)

// keyEncoding is lower-case base32: no character that a shell, a URL or a double click would break.
var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// castagnoli gives the checksum its polynomial; it finds typing errors, it protects nothing.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewKey makes a key: "sk-sg-" and the base32 of 256 random bits and their CRC-32C. The secret exists only in the
// answer; h is what a policy keeps.
func NewKey() (secret string, h Hash) {
	var raw [secretBytes + sumBytes]byte
	_, _ = rand.Read(raw[:secretBytes]) // never fails: see crypto/rand
	copy(raw[secretBytes:], checksum(raw[:secretBytes]))
	secret = keyPrefix + keyEncoding.EncodeToString(raw[:])
	return secret, sha256.Sum256([]byte(secret))
}

// ParseKey hashes a secret that has the form of a key. ok is false for anything else, so that garbage costs no look-up.
func ParseKey(secret string) (h Hash, ok bool) {
	body, ok := strings.CutPrefix(secret, keyPrefix)
	if !ok || len(body) != keyChars {
		return Hash{}, false
	}
	var raw [secretBytes + sumBytes]byte
	var text [keyChars]byte
	copy(text[:], body)
	if n, err := keyEncoding.Decode(raw[:], text[:]); err != nil || n != len(raw) {
		return Hash{}, false
	}
	// The encoding leaves two bits over: only the text that NewKey would write is a key, so that one key has one hash.
	if string(keyEncoding.AppendEncode(text[:0], raw[:])) != body || string(checksum(raw[:secretBytes])) != string(raw[secretBytes:]) {
		return Hash{}, false
	}
	return sha256.Sum256([]byte(secret)), true
}

func checksum(b []byte) []byte {
	c := crc32.Checksum(b, castagnoli)
	return []byte{byte(c >> 24), byte(c >> 16), byte(c >> 8), byte(c)}
}

// keyForm is anything that somebody may have meant to be a key.
var keyForm = regexp.MustCompile(keyPrefix + `[0-9A-Za-z_-]+`)

// Mask hides whatever looks like a key in a text for people: a key that was written into the wrong place must not be
// repeated in a log or on a page.
func Mask(text string) string {
	if !strings.Contains(text, keyPrefix) {
		return text
	}
	return keyForm.ReplaceAllString(text, keyPrefix+"…")
}

// String gives the 64 hex digits that ParseHash reads.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads 64 hex digits of either case.
func ParseHash(s string) (Hash, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != sha256.Size {
		return Hash{}, errors.New("not a SHA-256: want 64 hexadecimal digits, as `spokegate key new` prints them")
	}
	return Hash(b), nil
}
