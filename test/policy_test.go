package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spokegate/spokegate/identity"
)

// policyText is a policy file in the making, with the secrets of its keys.
type policyText struct {
	mu      sync.Mutex
	head    string            // everything but keys
	fields  map[string]string // of each key, by id: what follows id and sha256
	secrets map[string]string
	hashes  map[string]string
}

// newPolicy takes the part before the keys, and the keys by id: their further fields, such as "team: t1".
func newPolicy(head string, keys map[string]string) *policyText {
	p := &policyText{head: strings.TrimSpace(head), fields: map[string]string{}, secrets: map[string]string{}, hashes: map[string]string{}}
	for id, fields := range keys {
		p.set(id, fields)
	}
	return p
}

// set adds a key or changes one; its secret stays.
func (p *policyText) set(id, fields string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.secrets[id] == "" {
		secret, hash := identity.NewKey()
		p.secrets[id], p.hashes[id] = secret, hash.String()
	}
	p.fields[id] = fields
}

// setHead changes everything but the keys.
func (p *policyText) setHead(head string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = head
}

// keep has a secret looked for in all that is written, as those of keys are.
func (p *policyText) keep(secret string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secrets["a token "+secret[len(secret)-8:]] = secret
}

// key is the secret of a key.
func (p *policyText) key(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.secrets[id] == "" {
		panic("the test's policy has no key " + id)
	}
	return p.secrets[id]
}

func (p *policyText) yaml() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nkeys:\n", p.head)
	for _, id := range slices.Sorted(maps.Keys(p.fields)) {
		fmt.Fprintf(&b, "  - {id: %s, sha256: %q, %s}\n", id, p.hashes[id], p.fields[id])
	}
	return b.String()
}

// scanSecrets looks for keys in all that an installation wrote. Its env file may hold one: that is what it is for.
func (u *up) scanSecrets() error {
	return filepath.WalkDir(u.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == filepath.Join(u.dir, "env") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for id, secret := range u.policy.secrets {
			if bytes.Contains(data, []byte(secret)) {
				return fmt.Errorf("the secret of key %s is in %s", id, path)
			}
		}
		return nil
	})
}

// rewrite replaces the policy file at once, as a careful editor does.
func (u *up) rewrite(t testing.TB, text string) {
	t.Helper()
	if err := u.write(text); err != nil {
		t.Fatal(err)
	}
}

func (u *up) write(text string) error {
	tmp := u.policyPath + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, u.policyPath)
}

// key is the secret of a key of this installation's policy.
func (u *up) key(id string) string { return u.policy.key(id) }
