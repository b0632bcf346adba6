package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// Revocation is one key that a spoke refuses by itself, whatever its policy says: it holds over every revision, also one
// that comes later, until it is taken back.
type Revocation struct {
	Key string // the id of a key or of an issuer's subject (see [SubjectID]), or the SHA-256 of a secret in hex
	At  time.Time
}

// A spoke's revocations lie beside its last good policy, in one file: a first line with the format and the SHA-256 of the
// rest, then a line each, its time and its key. The file is replaced whole. No file is an empty list.
const (
	revokedName   = "revoked"
	revokedFormat = "spokegate-revoked-1 "
	maxRevoked    = 100_000 // so that the file stays below MaxFile
)

// RevokedPath is the file of the revocations in the folder of the last good policy.
func RevokedPath(dir string) string { return filepath.Join(dir, revokedName) }

// LoadRevoked reads the revocations in the folder, in the order in which they were made. An error means that some may be
// lost: whoever serves all the same lets revoked keys pass.
func LoadRevoked(dir string) ([]Revocation, error) {
	data, err := os.ReadFile(RevokedPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("revoked keys: %w", err)
	}
	return ParseRevoked(RevokedPath(dir), data)
}

// ParseRevoked reads the file's content; name is what an error calls the file.
func ParseRevoked(name string, data []byte) ([]Revocation, error) {
	first, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.Equal(append(first, '\n'), header(revokedFormat, body)) {
		return nil, fmt.Errorf("revoked keys: %s: damaged: the checksum does not fit; put a good copy in its place, or remove it and revoke those keys again", name)
	}
	var out []Revocation
	for line := range strings.Lines(string(body)) {
		at, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		when, err := time.Parse(time.RFC3339, at)
		if err != nil || !revocable(key) || len(out) == maxRevoked {
			return nil, fmt.Errorf("revoked keys: %s: written by another release: line %d is none that this one knows", name, len(out)+2)
		}
		out = append(out, Revocation{Key: key, At: when})
	}
	return out, nil
}

// ParseRevocable reads what names a key to revoke: its id, a subject's, or the SHA-256 of its secret in hex. It refuses a
// secret, and never repeats it.
func ParseRevocable(text string) (key string, err error) {
	if h, err := identity.ParseHash(text); err == nil {
		return h.String(), nil
	}
	switch {
	case identity.Mask(text) != text:
		return "", errors.New("this is a key itself, and a command line is no place for it: others can see it, and the shell remembers it. " +
			"Give the key's id, as usage records tell it, or its SHA-256:  printf %s \"$KEY\" | sha256sum")
	case !revocable(text):
		return "", fmt.Errorf("%s is no key's id: want the id of a key, ISSUER:SUBJECT of a JWT's subject as usage records tell it, or 64 hexadecimal digits of a SHA-256", quote(text))
	}
	return text, nil
}

// revocable says whether a revocation may have this key.
func revocable(key string) bool {
	if h, err := identity.ParseHash(key); err == nil {
		return h.String() == key
	}
	issuer, subject, ok := strings.Cut(key, subjectMark)
	if !ok {
		return validID(key)
	}
	return validID(issuer) && validID(strings.TrimPrefix(subject, subjectHash))
}

// EditRevoked changes the revocations in the folder, which must be there. One edit at a time, by whichever process, reads
// what is there and writes what edit makes of it; an error of edit changes nothing. It returns when the change would survive
// a loss of power.
func EditRevoked(dir string, edit func([]Revocation) ([]Revocation, error)) error {
	unlock, err := lockDir(dir)
	if err != nil {
		return fmt.Errorf("revoked keys: %w", err)
	}
	defer unlock()
	sweep(dir, revokedName)
	list, err := LoadRevoked(dir)
	if err != nil {
		return err
	}
	if list, err = edit(list); err != nil {
		return err
	}
	if len(list) > maxRevoked {
		return fmt.Errorf("revoked keys: there is room for %d; put them into the policy, and take them back here", maxRevoked)
	}
	var body bytes.Buffer
	for _, r := range list {
		fmt.Fprintf(&body, "%s %s\n", r.At.UTC().Format(time.RFC3339), r.Key)
	}
	if err := replace(dir, revokedName, revokedName, append(header(revokedFormat, body.Bytes()), body.Bytes()...)); err != nil {
		return fmt.Errorf("revoked keys: %w", err)
	}
	return nil
}

// Revoke is the snapshot with these keys revoked too. s stays as it is; revision and digest are the same, for they tell
// the policy and not what a spoke lays over it.
func (s *Snapshot) Revoke(list []Revocation) *Snapshot {
	if len(list) == 0 {
		return s
	}
	out := *s
	out.local = local{maps.Clone(s.local.ids), maps.Clone(s.local.hashes)}
	for _, r := range list {
		if h, err := identity.ParseHash(r.Key); err == nil {
			put(&out.local.hashes, h)
		} else {
			put(&out.local.ids, r.Key)
		}
	}
	return &out
}

func put[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

// named is the key that a revocation names; nil: none.
func (s *Snapshot) named(key string) *Key {
	if h, err := identity.ParseHash(key); err == nil {
		return s.Key(h)
	}
	return s.keyByID(key)
}

// Knows says whether a revocation of this key would refuse somebody: a key that is there, or a subject of an issuer that is.
func (s *Snapshot) Knows(key string) bool { return s.named(key) != nil || s.issuerOf(key) != nil }

// issuerOf is the issuer of a subject's id; nil: it is no subject's, or the issuer is not there.
func (s *Snapshot) issuerOf(id string) *Issuer {
	name, _, ok := strings.Cut(id, subjectMark)
	n := slices.IndexFunc(s.issuers, func(i *Issuer) bool { return i.Name == name })
	if !ok || n < 0 {
		return nil
	}
	return s.issuers[n]
}
