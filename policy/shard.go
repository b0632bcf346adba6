package policy

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// shard is a shard of keys, compiled: as small as a key can be that says nothing beyond its team. It is immutable, and the same
// in all snapshots in which its keys are.
type shard struct {
	hashes  []identity.Hash // sorted
	keys    []packed        // in the same order
	teams   []*Team         // that the keys are of, in the frame that it is compiled for
	special bool            // a key has models or limits of its own, which are good or not by what models and teams there are
}

// shards are all shards by number, none if empty. It is immutable once it is filled.
type shards []*shard

func (s shards) of(number uint32) *shard {
	if s == nil {
		return nil
	}
	return s[number]
}

// packed is a key but for its hash.
type packed struct {
	id      string
	expires int64 // seconds since 1970; 0: never
	more    *more // nil: nothing of that
	nanos   int32 // of the second at which it expires
	team    uint16
	flags   keyFlags
}

type keyFlags uint8

const (
	keyRevoked keyFlags = 1 << iota
	keySheddable
	keyExplains
)

// more is what few keys have.
type more struct {
	networks []netip.Prefix
	labels   map[string]string
	narrow   []string
	limits   []Limit
}

// packShard compiles a shard whose keys are known to be good.
func packShard(s *policyv1.KeyShard, all map[string]*Team) *shard {
	keys := slices.Clone(s.GetKeys())
	slices.SortFunc(keys, compareKeys)
	out := &shard{hashes: make([]identity.Hash, len(keys)), keys: make([]packed, len(keys))}
	teams := map[string]uint16{}
	for i, k := range keys {
		n, known := teams[k.GetTeam()]
		if !known {
			n = uint16(len(out.teams))
			teams[k.GetTeam()] = n
			out.teams = append(out.teams, all[k.GetTeam()])
		}
		out.hashes[i], out.keys[i] = identity.Hash(k.GetSha256()), pack(k, n)
		out.special = out.special || len(k.GetModels())+len(k.GetLimits()) > 0
	}
	out.teams = slices.Clone(out.teams)
	return out
}

func pack(k *policyv1.Key, team uint16) packed {
	out := packed{id: k.GetId(), team: team, expires: k.GetExpiresAt().GetSeconds(), nanos: k.GetExpiresAt().GetNanos()}
	if k.GetRevoked() {
		out.flags |= keyRevoked
	}
	if k.GetSheddable() {
		out.flags |= keySheddable
	}
	if k.GetExplain() {
		out.flags |= keyExplains
	}
	if len(k.GetModels())+len(k.GetLimits())+len(k.GetNetworks())+len(k.GetLabels()) == 0 {
		return out
	}
	out.more = &more{labels: maps.Clone(k.GetLabels()), limits: compileLimits(KeyLevel, k.GetId(), k.GetLimits())}
	if len(k.GetModels()) > 0 {
		out.more.narrow = slices.Clone(k.GetModels())
	}
	for _, text := range k.GetNetworks() {
		p, _ := parseNetwork(text)
		out.more.networks = append(out.more.networks, p)
	}
	return out
}

// of is the shard with its keys in other teams of the same names.
func (s *shard) of(all map[string]*Team) *shard {
	out := *s
	out.teams = make([]*Team, len(s.teams))
	for i, t := range s.teams {
		out.teams[i] = all[t.Name]
	}
	return &out
}

// find is the place of a hash, or -1. Hashes are spread evenly, so it begins where that one would be among so many: a step or
// two away, where halving would touch memory in eight places.
func (s *shard) find(h *identity.Hash) int {
	if s.len() == 0 {
		return -1
	}
	rest := uint64(binary.BigEndian.Uint32(h[1:5]) & (1<<28 - 1)) // behind the bits that all of the shard share
	i := int(rest * uint64(len(s.hashes)) >> 28)
	for i < len(s.hashes)-1 && bytes.Compare(s.hashes[i][:], h[:]) < 0 {
		i++
	}
	for i > 0 && bytes.Compare(s.hashes[i][:], h[:]) > 0 {
		i--
	}
	if s.hashes[i] != *h {
		return -1
	}
	return i
}

func (s *shard) len() int {
	if s == nil {
		return 0
	}
	return len(s.keys)
}

// sameIDs says whether two have the same ids in the same order.
func (s *shard) sameIDs(o *shard) bool {
	if s.len() != o.len() {
		return false
	}
	for i := range s.len() {
		if s.keys[i].id != o.keys[i].id {
			return false
		}
	}
	return true
}

// named is the place of an id, or -1.
func (s *shard) named(id string) int {
	if s == nil {
		return -1
	}
	return slices.IndexFunc(s.keys, func(k packed) bool { return k.id == id })
}

// key unfolds one.
func (s *shard) key(i int) *Key {
	p := &s.keys[i]
	k := &Key{
		ID: p.id, Team: s.teams[p.team], hash: s.hashes[i],
		Revoked: p.flags&keyRevoked != 0, shed: p.flags&keySheddable != 0, explain: p.flags&keyExplains != 0,
	}
	if p.expires != 0 {
		k.Expires = time.Unix(p.expires, int64(p.nanos)).UTC()
	}
	if m := p.more; m != nil {
		k.Networks, k.Labels, k.narrow, k.limits = m.networks, m.labels, m.narrow, m.limits
	}
	return k
}

// shardOfHash is the number of the shard that a hash belongs to.
func shardOfHash(h *identity.Hash) uint32 { return uint32(h[0])<<4 | uint32(h[1])>>4 }
