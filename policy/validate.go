package policy

import (
	"fmt"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// checker says what is wrong with a set. It knows nothing of files: a problem carries the message that it is about, and
// [Parse] knows where each message stood.
//
// Permitted on purpose: a model that nobody may use, an endpoint that no model names, a team without keys, a key that
// has expired. Refused on purpose: an entry of a models list that names no model, a prefix too, because it is a typing
// error more often than a plan, and would show only as refusals to people who did nothing wrong.
type checker struct {
	kept      bool // it was in force before: see CompileKept
	problems  Problems
	models    map[string]bool // those with an endpoint, and aliases
	aliases   map[string]bool
	remote    map[string]bool // served by other spokes
	endpoints map[string]bool
	teams     map[string]*policyv1.Team
	answers   map[string]uint32 // the least that a request by a name reserves for its answer, where it says nothing of it
}

// spot is a place in a set.
type spot struct {
	owner  any    // pointer to a message; nil: the set
	field  string // by its YAML key; "": the owner itself
	member string // of a field whose keys are the user's own; "": all of the field
	index  int    // of an element; -1: all of the field
}

func (c *checker) add(owner any, path, field string, index int, format string, args ...any) {
	full := path
	if field != "" {
		full = join(path, field)
	}
	if index >= 0 {
		full = fmt.Sprintf("%s[%d]", full, index)
	}
	c.problems = append(c.problems, Problem{Path: full, Text: fmt.Sprintf(format, args...), at: spot{owner: owner, field: field, index: index}})
}

// set checks everything. keys are those of the set's shards, in the order in which messages shall count them.
func (c *checker) set(set *policyv1.Set, keys []*policyv1.Key) {
	c.index(set)
	c.platform(set.GetPlatform())
	seen := map[string]bool{}
	for i, m := range set.GetModels() {
		c.model(m, label("models", m.GetName(), i), seen)
	}
	seen = map[string]bool{}
	for i, e := range set.GetEndpoints() {
		c.endpoint(e, label("endpoints", e.GetName(), i), seen)
	}
	seen = map[string]bool{}
	for i, t := range set.GetTeams() {
		c.team(t, label("teams", t.GetName(), i), seen)
	}
	c.keys(keys)
	c.issuers(set.GetIssuers())
}

// twice says whether two resources have one name.
func (c *checker) twice(set *policyv1.Set) bool {
	n := len(set.GetModels()) + len(set.GetEndpoints()) + len(set.GetTeams()) + len(set.GetIssuers())
	seen := map[Ref]bool{}
	for _, m := range set.GetModels() {
		seen[Ref{KindModel, m.GetName()}] = true
	}
	for _, e := range set.GetEndpoints() {
		seen[Ref{KindEndpoint, e.GetName()}] = true
	}
	for _, t := range set.GetTeams() {
		seen[Ref{KindTeam, t.GetName()}] = true
	}
	for _, i := range set.GetIssuers() {
		seen[Ref{KindIssuer, i.GetName()}] = true
	}
	return len(seen) < n
}

// shards checks that there is one of each number.
func (c *checker) shards(set *policyv1.Set) {
	seen := map[uint32]bool{}
	for i, s := range set.GetKeys() {
		if s.GetNumber() >= Shards || seen[s.GetNumber()] {
			c.add(s, fmt.Sprintf("keys[shard %d]", s.GetNumber()), "", -1, "element %d: want a number below %d, each once", i, Shards)
		}
		seen[s.GetNumber()] = true
	}
}

// placed checks that each key is where a look-up finds it.
func (c *checker) placed(s *policyv1.KeyShard) {
	if s.GetNumber() >= Shards {
		c.add(s, fmt.Sprintf("keys[shard %d]", s.GetNumber()), "", -1, "want a number below %d", Shards)
		return
	}
	for _, k := range s.GetKeys() {
		if len(k.GetSha256()) == len(identity.Hash{}) && shardOf(k) != s.GetNumber() {
			c.add(k, fmt.Sprintf("keys[shard %d]", s.GetNumber()), "", -1, "key %s belongs to shard %d", quote(k.GetId()), shardOf(k))
		}
	}
}

func (c *checker) index(set *policyv1.Set) {
	c.models, c.aliases, c.remote = map[string]bool{}, map[string]bool{}, map[string]bool{}
	c.endpoints, c.teams = map[string]bool{}, map[string]*policyv1.Team{}
	for _, m := range set.GetModels() {
		c.models[m.GetName()] = true
		if len(m.GetTargets()) > 0 {
			c.aliases[m.GetName()] = true
		}
		if m.GetElsewhere() != "" {
			c.remote[m.GetName()] = true
		}
	}
	c.answers = answers(set)
	for _, e := range set.GetEndpoints() {
		c.endpoints[e.GetName()] = true
	}
	for _, t := range set.GetTeams() {
		c.teams[t.GetName()] = t
	}
}

// once reports a name that others before it have.
func (c *checker) once(owner any, path, field, name string, seen map[string]bool) {
	if name != "" && seen[name] {
		c.add(owner, path, field, -1, "%s is taken by another before it", quote(name))
	}
	seen[name] = true
}

func (c *checker) endpoint(e *policyv1.Endpoint, path string, seen map[string]bool) {
	if bad := BadID(e.GetName()); bad != "" {
		c.add(e, path, "name", -1, "%s", bad)
	}
	c.once(e, path, "name", e.GetName(), seen)
	fields := map[string]bool{}
	for i, f := range e.GetAllowFields() {
		if !fieldRE.MatchString(f) {
			c.add(e, path, "allow_fields", i, "is not the name of a body field: want letters, digits and _")
		} else if fields[f] {
			c.add(e, path, "allow_fields", i, "%s is there twice", quote(f))
		}
		fields[f] = true
	}
	c.routing(e.GetRouting(), join(path, "routing"))
}

func (c *checker) team(t *policyv1.Team, path string, seen map[string]bool) {
	if bad := BadID(t.GetName()); bad != "" {
		c.add(t, path, "name", -1, "%s", bad)
	}
	c.once(t, path, "name", t.GetName(), seen)
	if len(t.GetModels()) == 0 {
		c.add(t, path, "models", -1, "is missing; want names of models, or a beginning with a final *")
	}
	c.patterns(t, path, t.GetModels(), c.models, "no model matches %s")
	c.eachLimits(t, path, t.GetLimits(), func(name string) bool { return anyMatches(t.GetModels(), name) })
}

// patterns checks a models list: each entry must name at least one of known.
func (c *checker) patterns(owner any, path string, patterns []string, known map[string]bool, none string) {
	seen := map[string]bool{}
	for i, p := range patterns {
		switch {
		case !patternRE.MatchString(p):
			c.add(owner, path, "models", i, "want the name of a model, or the beginning of one with a final *")
		case seen[p]:
			c.add(owner, path, "models", i, "%s is there twice", quote(p))
		case !matchesAny(p, known):
			c.add(owner, path, "models", i, none, quote(p))
		}
		seen[p] = true
	}
}

func matchesAny(pattern string, models map[string]bool) bool {
	for m := range models {
		if matches(pattern, m) {
			return true
		}
	}
	return false
}
