package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"time"
)

const (
	// MaxSecrets is for how many workers one context by MAC can be.
	MaxSecrets = 8
	// macHead begins a context by MAC. It is no base64url, so no JWT begins with it.
	macHead = "m"
	// tagEntry is the length of "ID:TAG" and of what parts it from the next.
	tagEntry = idText + 1 + tagText + 1
)

// MintFor is Mint for the workers alone that share these secrets with the door, one at least and MaxSecrets at most. Instead of a
// signature the context has a tag for each of them, which costs some hundredths of one:
//
//	m.PAYLOAD.ID:TAG,ID:TAG…
//
// PAYLOAD is base64url of the same claims as a JWT's, and TAG that of the first 16 bytes of HMAC-SHA256(secret,
// "spokegate-context-mac\n" + SHA-256(PAYLOAD)). Each tag is by the secret of the worker that is to read it, so a worker that wants to
// deceive can make contexts for itself only, where it needs none.
func (m *Minter) MintFor(c Context, now time.Time, to []Secret) string {
	var space [640]byte
	payload, enc := appendClaims(space[:0], m.door, c, now), base64.RawURLEncoding
	token := make([]byte, 0, len(macHead)+1+enc.EncodedLen(len(payload))+len(to)*tagEntry)
	token = enc.AppendEncode(append(token, macHead+"."...), payload)
	sum := sha256.Sum256(token[len(macHead)+1:])
	before := byte('.')
	for _, s := range to {
		tag := s.tag(sum)
		token = append(append(append(token, before), s.of.id...), ':')
		token = enc.AppendEncode(token, tag[:])
		before = ','
	}
	return string(token)
}

// SetSecret trusts what a door shares with this worker, in place of what had its id before.
func (v *Verifier) SetSecret(s Secret) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.secrets[s.of.id] = s
}

// RemoveSecret trusts a secret no more.
func (v *Verifier) RemoveSecret(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.secrets, id)
}

// tagged says what is wrong with the tags of a context by MAC. One of them must be by a secret that this worker shares, and one
// alone: no door makes two. What the others are is for other workers to judge.
func (v *Verifier) tagged(body, tags string) error {
	n := (len(tags) + 1) / tagEntry
	if n == 0 || n > MaxSecrets || len(tags)+1 != n*tagEntry {
		return ErrInvalid
	}
	s, tag, err := v.shared(tags)
	if err != nil {
		return err
	}
	var space [tagSize + 2]byte
	got, ok := decode(space[:0], tag)
	want := s.tag(sha256.Sum256([]byte(body)))
	if !ok || subtle.ConstantTimeCompare(got, want[:]) != 1 {
		return ErrInvalid
	}
	return nil
}

// shared finds the one tag whose secret is known, among entries of the right length.
func (v *Verifier) shared(tags string) (s Secret, tag string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err = ErrUnknownKey
	for {
		id, rest := tags[:idText], tags[idText+1:]
		if tags[idText] != ':' {
			return Secret{}, "", ErrInvalid
		}
		if known, ok := v.secrets[id]; ok {
			if err == nil {
				return Secret{}, "", ErrInvalid
			}
			s, tag, err = known, rest[:tagText], nil
		}
		if len(rest) == tagText {
			return s, tag, err
		}
		if rest[tagText] != ',' {
			return Secret{}, "", ErrInvalid
		}
		tags = rest[tagText+1:]
	}
}
