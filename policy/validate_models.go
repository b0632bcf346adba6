package policy

import (
	"fmt"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// MaxTargets bounds the targets of one alias.
const MaxTargets = 64

func (c *checker) platform(p *policyv1.Platform) {
	if p == nil {
		return
	}
	c.eachLimits(p, "platform", p.GetLimits(), func(string) bool { return true })
	c.tokens(p.GetTokens(), "platform.tokens")
	if _, known := policyv1.OnRevoke_name[int32(p.GetOnRevoke())]; !known {
		c.add(p, "platform", "on_revoke", -1, "want cut or finish")
	}
}

func (c *checker) model(m *policyv1.Model, path string, seen map[string]bool) {
	if bad := badModel(m.GetName()); bad != "" {
		c.add(m, path, "name", -1, "%s", bad)
	}
	c.once(m, path, "name", m.GetName(), seen)
	switch {
	case m.GetElsewhere() != "":
		c.elsewhere(m, path)
	case len(m.GetTargets()) > 0:
		c.alias(m, path)
	default:
		c.served(m, path)
	}
	for i, l := range m.GetLimits() {
		if l.GetModel() != "" {
			c.add(l, fmt.Sprintf("%s.limits[%d]", path, i), "model", -1, "a model's limit counts that model; leave this out")
			return
		}
	}
	c.eachLimits(m, path, m.GetLimits(), func(name string) bool { return name == m.GetName() })
}

// elsewhere checks a model that another spoke serves.
func (c *checker) elsewhere(m *policyv1.Model, path string) {
	if bad := BadID(m.GetElsewhere()); bad != "" {
		c.add(m, path, "elsewhere", -1, "%s", bad)
	}
	if m.GetEndpoint() != "" || len(m.GetTargets()) > 0 {
		c.add(m, path, "elsewhere", -1, "a model that another spoke serves has neither an endpoint nor targets here")
	}
}

// served checks a model that an endpoint serves.
func (c *checker) served(m *policyv1.Model, path string) {
	switch name := m.GetEndpoint(); {
	case name == "":
		c.add(m, path, "endpoint", -1, "is missing; want the name of an endpoint, or targets for an alias")
	case !c.endpoints[name]:
		c.add(m, path, "endpoint", -1, "there is no endpoint %s", quote(name))
	}
	if e := m.GetEngineName(); e != "" && !engineRE.MatchString(e) {
		c.add(m, path, "engine_name", -1, "is not a name that an engine gives: want up to 256 letters, digits and . _ : @ + / ~ = -")
	}
	c.tokens(m.GetTokens(), path+".tokens")
	c.priced(m.GetPrice(), path+".price")
}

// alias checks a model that stands for others. What a request of it does is said by the target that it goes to, so an
// alias says none of that itself.
func (c *checker) alias(m *policyv1.Model, path string) {
	if m.GetEndpoint() != "" {
		c.add(m, path, "endpoint", -1, "a model has either an endpoint or targets, not both")
	}
	if m.GetEngineName() != "" {
		c.add(m, path, "engine_name", -1, "means nothing on an alias; each of its targets has its own")
	}
	if m.GetTokens() != nil {
		c.add(m, path, "tokens", -1, "means nothing on an alias; tokens count as its targets say")
	}
	if m.GetPrice() != nil {
		c.add(m, path, "price", -1, "means nothing on an alias; a request costs what the target says that it goes to")
	}
	if len(m.GetTargets()) > MaxTargets {
		c.add(m, path, "targets", -1, "want at most %d", MaxTargets)
		return
	}
	seen := map[string]bool{}
	for i, t := range m.GetTargets() {
		at := fmt.Sprintf("%s.targets[%d]", path, i)
		c.target(t, at)
		if seen[t.GetModel()] {
			c.add(t, at, "model", -1, "%s is there twice; write both as one, with the sum of their weights", quote(t.GetModel()))
		}
		seen[t.GetModel()] = true
	}
}

func (c *checker) target(t *policyv1.Target, path string) {
	switch name := t.GetModel(); {
	case name == "":
		c.add(t, path, "model", -1, "is missing; want the name of a model")
	case !c.models[name]:
		c.add(t, path, "model", -1, "there is no model %s", quote(name))
	case c.remote[name]:
		c.add(t, path, "model", -1, "%s is served elsewhere", quote(name))
	case c.aliases[name]:
		c.add(t, path, "model", -1, "%s is an alias itself; want a model that has an endpoint", quote(name))
	}
	if t.Weight != nil && (t.GetWeight() < 1 || t.GetWeight() > MaxCount) {
		c.add(t, path, "weight", -1, "want a whole number from 1 to %d; to send nothing there, take it out", MaxCount)
	}
}

func (c *checker) tokens(t *policyv1.Tokens, path string) {
	if t == nil {
		return
	}
	if t.OutputMost != nil {
		c.count(t, path, "output_most", t.GetOutputMost())
	}
	if w := t.CachedWeight; w != nil && !within(*w, 0, 1) {
		c.add(t, path, "cached_weight", -1, "want a number from 0 to 1")
	}
}
