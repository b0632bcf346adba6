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
	return compile(set, now, checker{})
}

// CompileKept is Compile for a set that was in force before, under this release or an earlier one. What is sound and only of
// no use, a limit of tokens that lets no request without max_tokens pass, is refused when it is new and goes on when it was
// there: a release that has learned to refuse it must not leave a door without a policy.
func CompileKept(set *policyv1.Set, now time.Time) (*Snapshot, error) {
	return compile(set, now, checker{kept: true})
}

func compile(set *policyv1.Set, now time.Time, c checker) (*Snapshot, error) {
	c.shards(set)
	c.set(set, Keys(set))
	c.revision(set)
	if len(c.problems) > 0 {
		return nil, c.problems.sorted().err()
	}
	b := builder{
		endpointOf: map[string]*Endpoint{},
		Snapshot: &Snapshot{
			revision: set.GetRevision().GetNumber(), digest: Digest(set), since: now,
			keys: map[identity.Hash]*Key{}, byID: map[string]*Key{}, revoked: map[string]bool{},
			models: map[string]*Model{}, teams: map[string]*Team{},
			platform:      compileLimits(Platform, "", set.GetPlatform().GetLimits()),
			finishRevoked: set.GetPlatform().GetOnRevoke() == policyv1.OnRevoke_ON_REVOKE_FINISH,
		},
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
	endpointOf map[string]*Endpoint // by name
	sorted     []*Model
}

func (b *builder) build(set *policyv1.Set) {
	for _, e := range set.GetEndpoints() {
		b.endpointOf[e.GetName()] = compileEndpoint(e)
	}
	for _, m := range set.GetModels() {
		b.models[m.GetName()] = b.model(m, set.GetPlatform().GetTokens())
	}
	for _, m := range set.GetModels() {
		b.models[m.GetName()].Targets = b.targets(m.GetTargets())
	}
	b.endpoints = slices.SortedFunc(maps.Values(b.endpointOf), func(x, y *Endpoint) int { return cmp.Compare(x.Name, y.Name) })
	b.sorted = slices.SortedFunc(maps.Values(b.models), func(x, y *Model) int { return cmp.Compare(x.Name, y.Name) })
	for _, t := range set.GetTeams() {
		b.teams[t.GetName()] = b.team(t)
	}
	for _, k := range Keys(set) {
		b.key(k)
	}
	b.issuersOf(set.GetIssuers())
}

// model is one without its targets: they may come later in the set.
func (b *builder) model(m *policyv1.Model, platform *policyv1.Tokens) *Model {
	out := &Model{
		Name: m.GetName(), Endpoint: b.endpointOf[m.GetEndpoint()], EngineName: m.GetEngineName(),
		Tokens: tokensOf(platform, m.GetTokens()), Price: compilePrice(m.GetPrice()),
		limits: compileLimits(ModelLevel, m.GetName(), m.GetLimits()),
	}
	if out.EngineName == "" && out.Endpoint != nil {
		out.EngineName = out.Name
	}
	return out
}

// tokensOf puts together what the platform and a model say, each or neither.
func tokensOf(platform, model *policyv1.Tokens) Tokens {
	out := Tokens{OutputMost: defOutput, CachedWeight: defCached}
	for _, t := range []*policyv1.Tokens{platform, model} {
		if t != nil && t.OutputMost != nil {
			out.OutputMost = int64(t.GetOutputMost())
		}
		if t != nil && t.CachedWeight != nil {
			out.CachedWeight = t.GetCachedWeight()
		}
	}
	return out
}

func (b *builder) targets(list []*policyv1.Target) []Target {
	var out []Target
	for _, t := range list {
		weight := uint32(1)
		if t.Weight != nil {
			weight = t.GetWeight()
		}
		out = append(out, Target{Model: b.models[t.GetModel()], Weight: weight})
	}
	return out
}

func compileEndpoint(e *policyv1.Endpoint) *Endpoint {
	out := &Endpoint{Name: e.GetName(), AllowFields: map[string]bool{}, Routing: compileRouting(e.GetRouting())}
	for _, f := range e.GetAllowFields() {
		out.AllowFields[f] = true
	}
	return out
}

// team puts together, for each name that a team may ask for, what all its keys have in common.
func (b *builder) team(t *policyv1.Team) *Team {
	out := &Team{Name: t.GetName(), allowed: map[string]bool{}, shared: map[route][]Limit{}, shed: t.GetSheddable(), explain: t.GetExplain()}
	out.limits = compileLimits(TeamLevel, t.GetName(), t.GetLimits())
	for _, m := range b.sorted {
		if !anyMatches(t.GetModels(), m.Name) {
			continue
		}
		out.models = append(out.models, m)
		out.allowed[m.Name] = true
		if len(m.Targets) == 0 {
			out.shared[route{m, m}] = b.sharedLimits(out, m, m)
		}
		for _, target := range m.Targets {
			out.shared[route{m, target.Model}] = b.sharedLimits(out, m, target.Model)
		}
	}
	return out
}

func (b *builder) key(k *policyv1.Key) {
	out := &Key{
		ID: k.GetId(), Team: b.teams[k.GetTeam()], Revoked: k.GetRevoked(), Labels: maps.Clone(k.GetLabels()),
		hash: identity.Hash(k.GetSha256()), limits: compileLimits(KeyLevel, k.GetId(), k.GetLimits()),
		shed: k.GetSheddable(), explain: k.GetExplain(),
	}
	if t := k.GetExpiresAt(); t != nil {
		out.Expires = t.AsTime()
	}
	if len(k.GetModels()) > 0 {
		out.narrow = slices.Clone(k.GetModels())
	}
	for _, text := range k.GetNetworks() {
		p, _ := parseNetwork(text)
		out.Networks = append(out.Networks, p)
	}
	b.keys[out.hash], b.byID[out.ID] = out, out
}

// compileLimits applies defaults and names the counters.
func compileLimits(level Level, owner string, limits []*policyv1.Limit) []Limit {
	out := make([]Limit, 0, len(limits))
	for _, l := range limits {
		c := Limit{
			Level: level, Owner: owner, Model: l.GetModel(),
			RequestsPerSecond: l.GetRequestsPerSecond(), Burst: int(l.GetBurst()), Concurrency: int(l.GetConcurrency()),
			TokensPerMinute: int64(l.GetTokensPerMinute()),
			RequestsPerDay:  int64(l.GetRequestsPerDay()), TokensPerDay: int64(l.GetTokensPerDay()),
			RequestsPerMonth: int64(l.GetRequestsPerMonth()), TokensPerMonth: int64(l.GetTokensPerMonth()),
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
