package policy

import (
	"crypto/subtle"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// Snapshot is one revision, compiled for look-up. It is immutable: callers must not change what its methods return.
type Snapshot struct {
	revision  uint64
	digest    []byte
	since     time.Time
	keys      map[identity.Hash]*Key
	models    map[string]*Model
	endpoints map[string]*Endpoint

	sortedEndpoints []*Endpoint
}

// Revision is the number of the revision that this is compiled from.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Digest is the SHA-256 of the revision's resources, in hex. Equal content has an equal digest.
func (s *Snapshot) Digest() string { return hex.EncodeToString(s.digest) }

// Since is when it was compiled.
func (s *Snapshot) Since() time.Time { return s.since }

// Key finds a key by the hash of its secret; nil: unknown. Revoked and expired keys are found too: see [Key.Refused].
// The map is indexed by a hash, of which a caller controls no chosen part; the hash found is compared once more in
// constant time, so that the answer does not hang on how the map compares.
func (s *Snapshot) Key(h identity.Hash) *Key {
	k := s.keys[h]
	if k == nil || subtle.ConstantTimeCompare(k.hash[:], h[:]) != 1 {
		return nil
	}
	return k
}

// Model finds a model by its exact name; nil: unknown.
func (s *Snapshot) Model(name string) *Model { return s.models[name] }

// Endpoint finds an endpoint by its exact name; nil: unknown.
func (s *Snapshot) Endpoint(name string) *Endpoint { return s.endpoints[name] }

// Endpoints are all endpoints, sorted by name.
func (s *Snapshot) Endpoints() []*Endpoint { return s.sortedEndpoints }

// Keys is how many keys there are, revoked and expired ones included.
func (s *Snapshot) Keys() int { return len(s.keys) }

// Models are what a key may use, sorted by name.
func (s *Snapshot) Models(k *Key) []*Model {
	if k == nil || k.Team == nil {
		return nil
	}
	var out []*Model
	for _, m := range k.Team.models {
		if k.Allows(m) {
			out = append(out, m)
		}
	}
	return out
}

// Issuers are those whose JWTs stand for keys, sorted by name.
func (s *Snapshot) Issuers() []*Issuer { return nil }

// Subject is the key that a verified JWT stands for: of the team that it names, narrowed to models where narrow is not nil,
// with limits of its own. Nil: there is no such team. Expiry and networks are none: the JWT has its own.
func (s *Snapshot) Subject(i *Issuer, subject, team string, narrow []string) *Key { return nil }

// Revoked says whether a key that was admitted by its id is revoked, or no longer there.
func (s *Snapshot) Revoked(id string) bool { return false }

// CutsRevoked says that what a revoked key still has running is cut; else it may finish.
func (s *Snapshot) CutsRevoked() bool { return true }

// Limits are those that a request of this key for this model must pass: the platform's, the model's, the team's and the
// key's, in this order. A request for an alias meets those of the alias and those of its target, m. It says nothing about
// whether the key may use the model: see [Key.Allows].
func (s *Snapshot) Limits(k *Key, asked, m *Model) []Limit {
	if k == nil || k.Team == nil || m == nil {
		return nil
	}
	shared := k.Team.limits[m.Name]
	own := applying(k.limits, m.Name)
	if len(own) == 0 {
		return shared
	}
	return append(shared[:len(shared):len(shared)], own...)
}

// applying are the limits that a request for this model meets.
func applying(limits []Limit, model string) []Limit {
	var out []Limit
	for _, l := range limits {
		if l.Model == "" || l.Model == model {
			out = append(out, l)
		}
	}
	return out
}

// Current holds the snapshot in force. The zero value holds none.
type Current struct {
	p  atomic.Pointer[Snapshot]
	mu sync.Mutex
	// Of those who wait for the next snapshot; nil: of nobody. Guarded by mu.
	changed chan struct{}
}

// Load is the snapshot in force; nil before the first.
func (c *Current) Load() *Snapshot { return c.p.Load() }

// Store puts a snapshot in force.
func (c *Current) Store(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p.Store(s)
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Changed is closed at the next Store. Take the channel first, then the snapshot, so that no change is missed.
func (c *Current) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}
