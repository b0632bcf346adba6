package policy

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// set makes the set, and the keys in the order of the file.
func (p *parse) set(f *File) (*policyv1.Set, []*policyv1.Key) {
	set := &policyv1.Set{}
	if f.Platform != nil {
		set.Platform = p.platform(f.Platform)
	}
	for _, e := range f.Models {
		m := &policyv1.Model{
			Name: e.Name, Endpoint: e.Endpoint, EngineName: e.EngineName, Targets: p.targets(e.Targets),
			Tokens: p.tokens(e.Tokens), Price: p.price(e.Price), Limits: p.limits(e.Limits),
		}
		p.moved(m, e)
		set.Models = append(set.Models, m)
	}
	for _, e := range f.Endpoints {
		m := &policyv1.Endpoint{Name: e.Name, AllowFields: e.AllowFields, Routing: p.routing(e.Routing)}
		p.moved(m, e)
		set.Endpoints = append(set.Endpoints, m)
	}
	for _, e := range f.Teams {
		m := &policyv1.Team{Name: e.Name, Models: e.Models, Limits: p.limits(e.Limits), Sheddable: e.Sheddable, Explain: e.Explain}
		p.moved(m, e)
		set.Teams = append(set.Teams, m)
	}
	for _, e := range f.Issuers {
		m := &policyv1.Issuer{
			Name: e.Name, Issuer: e.Issuer, Audience: e.Audience, JwksFile: e.JWKSFile, JwksUrl: e.JWKSURL, Teams: e.Teams,
			TeamClaim: e.TeamClaim, ModelsClaim: e.ModelsClaim, Limits: p.limits(e.Limits), RevokedSubjects: e.RevokedSubjects,
		}
		p.moved(m, e)
		set.Issuers = append(set.Issuers, m)
	}
	keys := make([]*policyv1.Key, len(f.Keys))
	for i, e := range f.Keys {
		keys[i] = p.key(e, label("keys", e.ID, i))
	}
	set.Keys = KeyShards(keys)
	return set, keys
}

// moved says that a message stands where its entry stood.
func (p *parse) moved(message, entry any) { p.places[message] = p.places[entry] }

func (p *parse) platform(e *PlatformEntry) *policyv1.Platform {
	m := &policyv1.Platform{Limits: p.limits(e.Limits), Tokens: p.tokens(e.Tokens)}
	p.moved(m, e)
	if n := p.places[e].member("on_revoke"); n != nil && n.kind == text {
		switch e.OnRevoke {
		case "cut":
			m.OnRevoke = policyv1.OnRevoke_ON_REVOKE_CUT
		case "finish":
			m.OnRevoke = policyv1.OnRevoke_ON_REVOKE_FINISH
		default:
			p.add(n.line, n.col, "platform.on_revoke", "want cut or finish")
		}
	}
	return m
}

func (p *parse) tokens(e *TokensEntry) *policyv1.Tokens {
	if e == nil {
		return nil
	}
	m := &policyv1.Tokens{OutputMost: e.OutputMost, CachedWeight: e.CachedWeight}
	p.moved(m, e)
	return m
}

func (p *parse) price(e *PriceEntry) *policyv1.Price {
	if e == nil {
		return nil
	}
	m := &policyv1.Price{Currency: e.Currency, Input: (*int64)(e.Input), Cached: (*int64)(e.Cached), Output: (*int64)(e.Output)}
	p.moved(m, e)
	return m
}

func (p *parse) targets(entries []*TargetEntry) []*policyv1.Target {
	var out []*policyv1.Target
	for _, e := range entries {
		t := &policyv1.Target{Model: e.Model, Weight: e.Weight}
		p.moved(t, e)
		out = append(out, t)
	}
	return out
}

func (p *parse) limits(entries []*LimitEntry) []*policyv1.Limit {
	var out []*policyv1.Limit
	for _, e := range entries {
		l := &policyv1.Limit{
			Model: e.Model, RequestsPerSecond: e.RequestsPerSecond, Burst: e.Burst, Concurrency: e.Concurrency,
			TokensPerMinute: e.TokensPerMinute, RequestsPerDay: e.RequestsPerDay, TokensPerDay: e.TokensPerDay,
			RequestsPerMonth: e.RequestsPerMonth, TokensPerMonth: e.TokensPerMonth,
		}
		p.moved(l, e)
		out = append(out, l)
	}
	return out
}

func (p *parse) key(e *KeyEntry, path string) *policyv1.Key {
	k := &policyv1.Key{
		Id: e.ID, Team: e.Team, Models: e.Models, Limits: p.limits(e.Limits), Revoked: e.Revoked,
		Networks: e.Networks, Labels: e.Labels, Sheddable: e.Sheddable, Explain: e.Explain,
	}
	p.moved(k, e)
	if n := p.places[e].member("sha256"); n != nil && n.kind == text {
		k.Sha256 = p.hash(n, path)
	}
	if n := p.places[e].member("expires"); n != nil && n.kind == text {
		t, err := time.Parse(time.RFC3339, n.text)
		if err != nil {
			p.add(n.line, n.col, path+".expires", "want a date and time with a zone, like 2027-01-31T00:00:00Z")
			return k
		}
		k.ExpiresAt = timestamppb.New(t)
	}
	return k
}

// hash never repeats what stands there: it may be a key that someone took for its hash.
func (p *parse) hash(n *node, path string) []byte {
	if _, secret := identity.ParseKey(n.text); secret {
		p.add(n.line, n.col, path+".sha256", "this is a key itself, not its hash: whoever reads this file can use it; make another with `spokegate key new` and give that one's hash")
		return nil
	}
	h, err := identity.ParseHash(n.text)
	if err != nil {
		p.add(n.line, n.col, path+".sha256", "%v", err)
		return nil
	}
	return h[:]
}
