package policy

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// Compile checks a set whole, wherever it came from, and builds the look-up. now is when it is taken up. An error is
// [Problems]. The snapshot shares nothing with the set.
func Compile(set *policyv1.Set, now time.Time) (*Snapshot, error) {
	c := checker{}
	c.shards(set)
	if _, err := proto.Marshal(set); err != nil || c.twice(set) { // in a cut, nothing would be left to tell of
		c.set(set, Keys(set))
	}
	cut := NewCut(set)
	if d := set.GetRevision().GetDigest(); len(d) > 0 && !bytes.Equal(d, cut.Digest()) {
		c.add(nil, "revision", "digest", -1, "does not fit the content: something is missing, or was changed on the way")
	}
	if len(c.problems) > 0 {
		return nil, c.problems.sorted().err()
	}
	return CompileCut(nil, cut, now)
}

// CompileCut is Compile for a cut. What it shares with the one that prev was compiled from is taken over and not looked at
// again, so that one key that changes among a million costs its shard. prev may be nil.
func CompileCut(prev *Snapshot, cut *Cut, now time.Time) (*Snapshot, error) {
	return compile(prev, cut, now, checker{})
}

// CompileKept is CompileCut for what was in force before, under this release or an earlier one. What is sound and only of
// no use, a limit of tokens that lets no request without max_tokens pass, is refused when it is new and goes on when it was
// there: a release that has learned to refuse it must not leave a door without a policy.
func CompileKept(cut *Cut, now time.Time) (*Snapshot, error) {
	return compile(nil, cut, now, checker{kept: true})
}

func compile(prev *Snapshot, cut *Cut, now time.Time, check checker) (*Snapshot, error) {
	if prev == nil {
		prev = &Snapshot{cut: &Cut{}, shards: make(shards, Shards), ids: &idIndex{}}
	}
	c := compiler{checker: check, prev: prev, cut: cut}
	c.keysOf(c.around())
	if len(c.problems) > 0 {
		return nil, c.problems.sorted().err()
	}
	return &Snapshot{frame: c.frame, cut: cut, since: now, shards: c.shards, ids: c.ids, count: c.count}, nil
}

// builder holds what a frame needs only while it is made. Every reference is known to be good here.
type builder struct {
	frame
	endpointOf map[string]*Endpoint // by name
	sorted     []*Model
}

// newFrame compiles all of a set but its keys.
func newFrame(set *policyv1.Set) frame {
	b := builder{
		endpointOf: map[string]*Endpoint{},
		frame: frame{
			set: set, models: map[string]*Model{}, teams: map[string]*Team{}, subjects: map[string]bool{},
			platform:      compileLimits(Platform, "", set.GetPlatform().GetLimits()),
			finishRevoked: set.GetPlatform().GetOnRevoke() == policyv1.OnRevoke_ON_REVOKE_FINISH,
		},
	}
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
	b.issuersOf(set.GetIssuers())
	return b.frame
}

// model is one without its targets: they may come later in the set.
func (b *builder) model(m *policyv1.Model, platform *policyv1.Tokens) *Model {
	out := &Model{
		Name: m.GetName(), Endpoint: b.endpointOf[m.GetEndpoint()], EngineName: m.GetEngineName(),
		Tokens: tokensOf(platform, m.GetTokens()), Price: compilePrice(m.GetPrice()), Elsewhere: m.GetElsewhere(),
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
