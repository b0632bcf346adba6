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
	problems  Problems
	models    map[string]bool
	endpoints map[string]bool
	teams     map[string]*policyv1.Team
}

// spot is a place in a set.
type spot struct {
	owner any    // pointer to a message; nil: the set
	field string // by its YAML key; "": the owner itself
	index int    // of an element; -1: all of the field
}

func (c *checker) add(owner any, path, field string, index int, format string, args ...any) {
	full := path
	if field != "" {
		full = join(path, field)
	}
	if index >= 0 {
		full = fmt.Sprintf("%s[%d]", full, index)
	}
	c.problems = append(c.problems, Problem{Path: full, Text: fmt.Sprintf(format, args...), at: spot{owner, field, index}})
}

// set checks everything. keys are those of the set's shards, in the order in which messages shall count them.
func (c *checker) set(set *policyv1.Set, keys []*policyv1.Key) {
	c.index(set)
	c.eachLimits(set.GetPlatform(), "platform", set.GetPlatform().GetLimits())
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
}

func (c *checker) index(set *policyv1.Set) {
	c.models, c.endpoints, c.teams = map[string]bool{}, map[string]bool{}, map[string]*policyv1.Team{}
	for _, m := range set.GetModels() {
		c.models[m.GetName()] = true
	}
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

func (c *checker) model(m *policyv1.Model, path string, seen map[string]bool) {
	if bad := badModel(m.GetName()); bad != "" {
		c.add(m, path, "name", -1, "%s", bad)
	}
	c.once(m, path, "name", m.GetName(), seen)
	switch name := m.GetEndpoint(); {
	case name == "":
		c.add(m, path, "endpoint", -1, "is missing; want the name of an endpoint")
	case !c.endpoints[name]:
		c.add(m, path, "endpoint", -1, "there is no endpoint %s", quote(name))
	}
	for i, l := range m.GetLimits() {
		if l.GetModel() != "" {
			c.add(l, fmt.Sprintf("%s.limits[%d]", path, i), "model", -1, "a model's limit counts that model; leave this out")
			return
		}
	}
	c.eachLimits(m, path, m.GetLimits())
}

func (c *checker) endpoint(e *policyv1.Endpoint, path string, seen map[string]bool) {
	if bad := badID(e.GetName()); bad != "" {
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
	if bad := badID(t.GetName()); bad != "" {
		c.add(t, path, "name", -1, "%s", bad)
	}
	c.once(t, path, "name", t.GetName(), seen)
	if len(t.GetModels()) == 0 {
		c.add(t, path, "models", -1, "is missing; want names of models, or a beginning with a final *")
	}
	c.patterns(t, path, t.GetModels(), c.models, "no model matches %s")
	c.eachLimits(t, path, t.GetLimits())
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

func (c *checker) keys(keys []*policyv1.Key) {
	ids, hashes := map[string]bool{}, map[identity.Hash]string{}
	for i, k := range keys {
		path := label("keys", k.GetId(), i)
		if bad := badID(k.GetId()); bad != "" {
			c.add(k, path, "id", -1, "%s", bad)
		}
		c.once(k, path, "id", k.GetId(), ids)
		c.hash(k, path, hashes)
		c.owner(k, path)
		if t := k.GetExpiresAt(); t != nil && (t.CheckValid() != nil || t.GetSeconds() <= 0) {
			// The year 1 would read as "never": see Key.Expires.
			c.add(k, path, "expires", -1, "want a time after 1970")
		}
		c.eachLimits(k, path, k.GetLimits())
	}
}

func (c *checker) hash(k *policyv1.Key, path string, hashes map[identity.Hash]string) {
	if len(k.GetSha256()) == 0 {
		c.add(k, path, "sha256", -1, "is missing; want the hash that `spokegate key new` prints")
		return
	}
	if len(k.GetSha256()) != len(identity.Hash{}) {
		c.add(k, path, "sha256", -1, "is not a SHA-256: want 32 bytes")
		return
	}
	h := identity.Hash(k.GetSha256())
	if other, taken := hashes[h]; taken {
		c.add(k, path, "sha256", -1, "this is also the hash of key %s; one secret can be one key only", quote(other))
		return
	}
	hashes[h] = k.GetId()
}

// owner checks what a key takes from its team.
func (c *checker) owner(k *policyv1.Key, path string) {
	if k.GetTeam() == "" {
		c.add(k, path, "team", -1, "is missing; want the name of a team")
		return
	}
	t, ok := c.teams[k.GetTeam()]
	if !ok {
		c.add(k, path, "team", -1, "there is no team %s", quote(k.GetTeam()))
		return
	}
	known := map[string]bool{}
	for m := range c.models {
		if len(k.GetModels()) > 0 && anyMatches(t.GetModels(), m) {
			known[m] = true
		}
	}
	c.patterns(k, path, k.GetModels(), known, "no model of team "+quote(k.GetTeam())+" matches %s")
}
