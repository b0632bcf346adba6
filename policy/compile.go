package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// Compile checks a set whole, wherever it came from, and builds the look-up. now is when it is taken up. An error is
// [Problems]. The snapshot shares nothing with the set.
func Compile(set *policyv1.Set, now time.Time) (*Snapshot, error) {
	c := checker{}
	c.shards(set)
	c.set(set, Keys(set))
	c.revision(set)
	if len(c.problems) > 0 {
		return nil, c.problems.sorted().err()
	}
	b := builder{
		Snapshot: &Snapshot{
			revision: set.GetRevision().GetNumber(), digest: Digest(set), since: now,
			keys: map[identity.Hash]*Key{}, models: map[string]*Model{}, endpoints: map[string]*Endpoint{},
		},
		platform: compileLimits(Platform, "", set.GetPlatform().GetLimits()),
		teams:    map[string]*Team{},
	}
	b.build(set)
	return b.Snapshot, nil
}

// shards checks that each key is where a look-up by shard would find it.
func (c *checker) shards(set *policyv1.Set) {
	seen := map[uint32]bool{}
	for i, s := range set.GetKeys() {
		path := fmt.Sprintf("keys[shard %d]", s.GetNumber())
		if s.GetNumber() >= Shards || seen[s.GetNumber()] {
			c.add(s, path, "", -1, "element %d: want a number below %d, each once", i, Shards)
		}
		seen[s.GetNumber()] = true
		for _, k := range s.GetKeys() {
			if len(k.GetSha256()) == len(identity.Hash{}) && shardOf(k) != s.GetNumber() {
				c.add(k, path, "", -1, "key %s belongs to shard %d", quote(k.GetId()), shardOf(k))
			}
		}
	}
}

// revision checks that a digest that came along fits the content.
func (c *checker) revision(set *policyv1.Set) {
	if d := set.GetRevision().GetDigest(); len(d) > 0 && !bytes.Equal(d, Digest(set)) {
		c.add(nil, "revision", "digest", -1, "does not fit the content: something is missing, or was changed on the way")
	}
}

// builder holds what a snapshot needs only while it is made. Every reference is known to be good here.
type builder struct {
	*Snapshot
	platform []Limit
	sorted   []*Model
	teams    map[string]*Team
}

func (b *builder) build(set *policyv1.Set) {
	for _, e := range set.GetEndpoints() {
		b.endpoints[e.GetName()] = compileEndpoint(e)
	}
	for _, m := range set.GetModels() {
		b.models[m.GetName()] = &Model{
			Name: m.GetName(), Endpoint: b.endpoints[m.GetEndpoint()],
			limits: compileLimits(ModelLevel, m.GetName(), m.GetLimits()),
		}
	}
	b.sortedEndpoints = slices.SortedFunc(maps.Values(b.endpoints), func(x, y *Endpoint) int { return cmp.Compare(x.Name, y.Name) })
	b.sorted = slices.SortedFunc(maps.Values(b.models), func(x, y *Model) int { return cmp.Compare(x.Name, y.Name) })
	for _, t := range set.GetTeams() {
		b.teams[t.GetName()] = b.team(t)
	}
	for _, k := range Keys(set) {
		b.key(k)
	}
}

func compileEndpoint(e *policyv1.Endpoint) *Endpoint {
	out := &Endpoint{
		Name: e.GetName(), AllowFields: map[string]bool{},
		Routing: Routing{OverlapWeight: defOverlap, Temperature: e.GetRouting().GetTemperature(), BlockBytes: defBlock},
	}
	for _, f := range e.GetAllowFields() {
		out.AllowFields[f] = true
	}
	if r := e.GetRouting(); r != nil && r.OverlapWeight != nil {
		out.Routing.OverlapWeight = r.GetOverlapWeight()
	}
	if r := e.GetRouting(); r != nil && r.BlockBytes != nil {
		out.Routing.BlockBytes = int(r.GetBlockBytes())
	}
	return out
}

// team puts together, for each model that a team may use, what all its keys have in common.
func (b *builder) team(t *policyv1.Team) *Team {
	out := &Team{Name: t.GetName(), allowed: map[string]bool{}, limits: map[string][]Limit{}}
	own := compileLimits(TeamLevel, t.GetName(), t.GetLimits())
	for _, m := range b.sorted {
		if !anyMatches(t.GetModels(), m.Name) {
			continue
		}
		out.models = append(out.models, m)
		out.allowed[m.Name] = true
		out.limits[m.Name] = slices.Concat(applying(b.platform, m.Name), m.limits, applying(own, m.Name))
	}
	return out
}

func (b *builder) key(k *policyv1.Key) {
	out := &Key{
		ID: k.GetId(), Team: b.teams[k.GetTeam()], Revoked: k.GetRevoked(),
		hash: identity.Hash(k.GetSha256()), limits: compileLimits(KeyLevel, k.GetId(), k.GetLimits()),
	}
	if t := k.GetExpiresAt(); t != nil {
		out.Expires = t.AsTime()
	}
	if len(k.GetModels()) > 0 {
		out.narrow = map[string]bool{}
		for _, m := range out.Team.models {
			if anyMatches(k.GetModels(), m.Name) {
				out.narrow[m.Name] = true
			}
		}
	}
	b.keys[out.hash] = out
}

// compileLimits applies defaults and names the counters.
func compileLimits(level Level, owner string, limits []*policyv1.Limit) []Limit {
	out := make([]Limit, 0, len(limits))
	for _, l := range limits {
		c := Limit{
			Level: level, Owner: owner, Model: l.GetModel(),
			RequestsPerSecond: l.GetRequestsPerSecond(), Burst: int(l.GetBurst()), Concurrency: int(l.GetConcurrency()),
		}
		if level == ModelLevel {
			c.Model = owner
		}
		if c.RequestsPerSecond > 0 && c.Burst == 0 {
			c.Burst = int(math.Ceil(c.RequestsPerSecond)) // one second's worth
		}
		c.ID = counter(level, owner, c.Model)
		out = append(out, c)
	}
	return out
}
