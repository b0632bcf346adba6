package policy

import (
	"crypto/subtle"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// Snapshot is one revision, compiled for look-up. It is immutable: callers must not change what its methods return.
type Snapshot struct {
	frame
	cut    *Cut
	since  time.Time
	shards shards
	ids    *idIndex
	count  int // of keys

	local local
}

// frame is all of a revision but its keys. Revisions that differ in keys alone have what it points to in common.
type frame struct {
	set       *policyv1.Set // what it was compiled from
	models    map[string]*Model
	teams     map[string]*Team
	endpoints []*Endpoint // sorted by name
	platform  []Limit

	issuers       []*Issuer       // sorted by name
	subjects      map[string]bool // of issuers, those that are revoked
	finishRevoked bool
}

// local is what a spoke revokes by itself.
type local struct {
	ids    map[string]bool
	hashes map[identity.Hash]bool
}

// Revision is the number of the revision that this is compiled from.
func (s *Snapshot) Revision() uint64 { return s.cut.Revision().GetNumber() }

// Digest is that of the revision's content, in hex: see [Cut.Digest].
func (s *Snapshot) Digest() string { return hex.EncodeToString(s.cut.Digest()) }

// Cut is what it is compiled from.
func (s *Snapshot) Cut() *Cut { return s.cut }

// Since is when it was compiled.
func (s *Snapshot) Since() time.Time { return s.since }

// Key finds a key by the hash of its secret; nil: unknown. Revoked and expired keys are found too: see [Key.Refused].
// Keys are looked up by a hash, of which a caller controls no chosen part; the hash found is compared once more in
// constant time, so that the answer does not hang on how the search compares.
func (s *Snapshot) Key(h identity.Hash) *Key {
	keys := s.shards.of(shardOfHash(&h))
	i := keys.find(&h)
	if i < 0 || subtle.ConstantTimeCompare(keys.hashes[i][:], h[:]) != 1 {
		return nil
	}
	return s.unfold(keys, i)
}

func (s *Snapshot) unfold(keys *shard, i int) *Key {
	k := keys.key(i)
	k.Revoked = k.Revoked || s.local.ids[k.ID] || s.local.hashes[k.hash]
	return k
}

// keyByID finds a key by its id; nil: unknown.
func (s *Snapshot) keyByID(id string) *Key {
	for _, number := range s.ids.shards(id) {
		if i := s.shards.of(number).named(id); i >= 0 {
			return s.unfold(s.shards.of(number), i)
		}
	}
	return nil
}

// Model finds a model by its exact name; nil: unknown.
func (s *Snapshot) Model(name string) *Model { return s.models[name] }

// Endpoints are all endpoints, sorted by name.
func (s *Snapshot) Endpoints() []*Endpoint { return s.endpoints }

// Keys is how many keys there are, revoked and expired ones included.
func (s *Snapshot) Keys() int { return s.count }

// Models are what a key may use here, sorted by name.
func (s *Snapshot) Models(k *Key) []*Model {
	if k == nil || k.Team == nil {
		return nil
	}
	var out []*Model
	for _, m := range k.Team.models {
		if k.Allows(m) && m.Elsewhere == "" {
			out = append(out, m)
		}
	}
	return out
}

// Revoked says whether a key that was admitted by its id is revoked, or no longer there. A subject of an issuer is there as
// long as its issuer is. What has expired is not revoked: what was admitted in time may finish.
func (s *Snapshot) Revoked(id string) bool {
	if k := s.keyByID(id); k != nil {
		return k.Revoked
	}
	return s.subjectRevoked(id) || s.issuerOf(id) == nil
}

// CutsRevoked says that what a revoked key still has running is cut; else it may finish.
func (s *Snapshot) CutsRevoked() bool { return !s.finishRevoked }

// Limits are those that a request of this key must pass which asks for a name and goes to a model: the platform's, the
// model's, the team's and the key's, in this order, each once. They differ for an alias: it brings its own limits and those
// of the model, and a limit that names either counts the request. It says nothing about whether the key may use the model:
// see [Key.Allows].
func (s *Snapshot) Limits(k *Key, asked, m *Model) []Limit {
	if k == nil || k.Team == nil || asked == nil || m == nil {
		return nil
	}
	r := route{asked, m}
	shared, ok := k.Team.shared[r]
	if !ok {
		shared = s.sharedLimits(k.Team, asked, m)
	}
	own := 0
	for i := range k.limits {
		if r.meets(&k.limits[i]) {
			own++
		}
	}
	if own == 0 {
		return shared
	}
	out := append(make([]Limit, 0, len(shared)+own), shared...)
	return r.appendMet(out, k.limits)
}

// sharedLimits are those that all keys of a team meet: the platform's, the model's and the team's.
func (s *frame) sharedLimits(t *Team, asked, m *Model) []Limit {
	r := route{asked, m}
	out := r.appendMet(nil, s.platform)
	out = append(out, asked.limits...)
	if m.Name != asked.Name {
		out = append(out, m.limits...)
	}
	return r.appendMet(out, t.limits)
}

// meets says whether a limit counts the request.
func (r route) meets(l *Limit) bool {
	return l.Model == "" || l.Model == r.asked.Name || l.Model == r.model.Name
}

func (r route) appendMet(out, limits []Limit) []Limit {
	for i := range limits {
		if r.meets(&limits[i]) {
			out = append(out, limits[i])
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
