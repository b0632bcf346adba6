package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
)

const (
	secretSize = 32 // bytes
	tagSize    = 16 // bytes of a MAC that travel
	// idText and tagText are their lengths in base64url, without padding.
	idText  = 11 // of 8 bytes
	tagText = 22
)

// Secret is what a door shares with one worker, and with nobody else: with it they make and check contexts by MAC. It shows itself
// to nobody: printed, logged or put into JSON it is a word. The zero value is none.
type Secret struct{ of *keyed } // a pointer, so that a Secret in a struct that is printed is an address

// keyed is a secret, and the blocks that HMAC's two hashes begin with.
type keyed struct {
	id           string
	key          [secretSize]byte
	inner, outer [sha256.BlockSize]byte
}

// NewSecret makes a secret and a name for it, both random.
func NewSecret() Secret {
	var id [8]byte
	key := make([]byte, secretSize)
	_, _ = rand.Read(id[:]) // never fails: see crypto/rand
	_, _ = rand.Read(key)
	return newSecret(base64.RawURLEncoding.EncodeToString(id[:]), key)
}

// SecretOf is the secret that a door has told. The error says what is wrong with its form.
func SecretOf(id string, key []byte) (Secret, error) {
	if name, ok := decode(nil, id); !ok || len(name) != 8 || len(key) != secretSize {
		return Secret{}, fmt.Errorf("a secret of the door's is not %d bytes, or its id is not 8 bytes in base64url", secretSize)
	}
	return newSecret(id, key), nil
}

func newSecret(id string, key []byte) Secret {
	k := &keyed{id: id, key: [secretSize]byte(key)}
	copy(k.inner[:], key)
	copy(k.outer[:], key)
	for i := range k.inner {
		k.inner[i] ^= 0x36
		k.outer[i] ^= 0x5c
	}
	return Secret{k}
}

// ID names it in contexts. It is no secret.
func (s Secret) ID() string { return s.of.id }

// Key is the secret itself, for the worker alone.
func (s Secret) Key() []byte { return s.of.key[:] }

const redacted = "(secret)"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }

// macPurpose keeps these MACs apart from all others that may be made with the same secret. With the sum of a payload it fills one
// block of SHA-256.
const macPurpose = "spokegate-context-mac\n"

// tag is HMAC-SHA256(secret, macPurpose + sum), cut to half. Written out, since the library's costs six allocations for each; a test
// holds both against each other.
func (s Secret) tag(sum [sha256.Size]byte) [tagSize]byte {
	var in [sha256.BlockSize + len(macPurpose) + sha256.Size]byte
	copy(in[:], s.of.inner[:])
	copy(in[sha256.BlockSize:], macPurpose)
	copy(in[sha256.BlockSize+len(macPurpose):], sum[:])
	inner := sha256.Sum256(in[:])
	var out [sha256.BlockSize + sha256.Size]byte
	copy(out[:], s.of.outer[:])
	copy(out[sha256.BlockSize:], inner[:])
	whole := sha256.Sum256(out[:])
	return [tagSize]byte(whole[:])
}
