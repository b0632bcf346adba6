package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

func compiled(t *testing.T, set *policyv1.Set) *Snapshot {
	t.Helper()
	s, err := Compile(set, t0)
	if err != nil {
		t.Fatalf("%v\n%v", err, set)
	}
	return s
}

// randomSet is a valid set with four models, two aliases, three teams and n keys, that says what a policy can say. t0 may
// use m0 at least.
func randomSet(rnd *rand.Rand, n int) *policyv1.Set {
	set := &policyv1.Set{Platform: &policyv1.Platform{
		Limits: randomLimits(rnd), Tokens: randomTokens(rnd), OnRevoke: policyv1.OnRevoke(rnd.IntN(3)),
	}}
	for i := range 2 {
		set.Endpoints = append(set.Endpoints, &policyv1.Endpoint{Name: fmt.Sprint("e", i), Routing: randomRouting(rnd)})
	}
	for _, name := range []string{"m0", "m1", "m10", "x"} {
		m := &policyv1.Model{Name: name, Endpoint: fmt.Sprint("e", rnd.IntN(2)), Tokens: randomTokens(rnd), Price: randomPrice(rnd), Limits: randomLimit(rnd, "")}
		if rnd.IntN(3) == 0 {
			m.EngineName = "lora/" + name
		}
		set.Models = append(set.Models, m)
	}
	for _, name := range []string{"m5", "alias"} {
		m := &policyv1.Model{Name: name, Limits: randomLimit(rnd, "")}
		for _, i := range rnd.Perm(4)[:1+rnd.IntN(4)] {
			t := &policyv1.Target{Model: set.Models[i].Name}
			if rnd.IntN(2) == 0 {
				t.Weight = proto.Uint32(1 + rnd.Uint32N(9))
			}
			m.Targets = append(m.Targets, t)
		}
		set.Models = append(set.Models, m)
	}
	rnd.Shuffle(len(set.Models), func(i, j int) { set.Models[i], set.Models[j] = set.Models[j], set.Models[i] })
	for i := range 3 {
		set.Teams = append(set.Teams, &policyv1.Team{Name: fmt.Sprint("t", i), Models: somePatterns(rnd), Limits: randomLimits(rnd), Sheddable: rnd.IntN(2) == 0, Explain: rnd.IntN(2) == 0})
	}
	var keys []*policyv1.Key
	for i := range n {
		keys = append(keys, randomKey(rnd, set, i))
	}
	set.Keys = KeyShards(keys)
	for i := range rnd.IntN(3) {
		set.Issuers = append(set.Issuers, randomIssuer(rnd, i))
	}
	return set
}

func randomRouting(rnd *rand.Rand) *policyv1.Routing {
	if rnd.IntN(3) == 0 {
		return nil
	}
	number := func(most float64) *float64 {
		if rnd.IntN(2) == 0 {
			return nil
		}
		return proto.Float64(rnd.Float64() * most)
	}
	count := func(least, most uint32) *uint32 {
		if rnd.IntN(2) == 0 {
			return nil
		}
		return proto.Uint32(least + rnd.Uint32N(most-least+1))
	}
	return &policyv1.Routing{
		OverlapWeight: number(MaxWeight), MissWeight: number(MaxWeight), Temperature: number(MaxWeight), BlockBytes: count(MinBlock, MaxBlock),
		ActiveWeight: number(MaxWeight), CreditDecay: number(MaxWeight), AffinityWeight: number(MaxWeight),
		Tiers: &policyv1.Tiers{Host: number(1), Disk: number(1), Shared: number(1)},
		Busy:  &policyv1.Busy{DecodeShare: number(1), PrefillTokens: count(1, MaxCount), Queue: count(1, MaxCount)},
		Split: &policyv1.Split{MinTokens: count(1, MaxCount), CachedShare: number(1)},
	}
}

func somePatterns(rnd *rand.Rand) []string {
	all := []string{"m0", "m1", "m*", "m1*", "x", "*", "alias", "a*"}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+rnd.IntN(3)]
}

func randomKey(rnd *rand.Rand, set *policyv1.Set, i int) *policyv1.Key {
	k := &policyv1.Key{Id: fmt.Sprint("k", i), Team: fmt.Sprint("t", rnd.IntN(3)), Limits: randomLimits(rnd), Sha256: make([]byte, 32), Sheddable: rnd.IntN(2) == 0, Explain: rnd.IntN(2) == 0}
	for j := range k.Sha256 {
		k.Sha256[j] = byte(rnd.Uint32())
	}
	// Entries that name nothing of the team are refused, so keep those that do.
	k.Models = slices.DeleteFunc(somePatterns(rnd), func(p string) bool {
		return !slices.ContainsFunc(set.Models, func(m *policyv1.Model) bool {
			return matches(p, m.Name) && oracleAllows(set, &policyv1.Key{Team: k.Team}, m.Name)
		})
	})
	networks := []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1", "::ffff:172.16.0.0/108", "0.0.0.0/0"}
	if rnd.IntN(2) == 0 {
		rnd.Shuffle(len(networks), func(i, j int) { networks[i], networks[j] = networks[j], networks[i] })
		k.Networks = networks[:1+rnd.IntN(len(networks))]
	}
	if rnd.IntN(2) == 0 {
		k.Labels = map[string]string{"cost-center": fmt.Sprint(rnd.IntN(100)), "owner/mail": "a@b", "empty": "", "words": "zwölf \"x\": # yes"}
	}
	return k
}

func randomIssuer(rnd *rand.Rand, n int) *policyv1.Issuer {
	i := &policyv1.Issuer{Name: fmt.Sprint("i", n), Issuer: fmt.Sprint("https://id.example.com/", n), Audience: "spokegate", Limits: randomLimits(rnd)}
	if rnd.IntN(2) == 0 {
		i.JwksFile, i.TeamClaim, i.Teams = "/etc/spokegate/jwks.json", "https://example.com/team", []string{"t1"}
	} else {
		i.JwksUrl, i.ModelsClaim, i.RevokedSubjects = "https://id.example.com/jwks?x=1", "models", []string{"eve", "auth0|7"}
	}
	return i
}

func randomTokens(rnd *rand.Rand) *policyv1.Tokens {
	if rnd.IntN(2) == 0 {
		return nil
	}
	t := &policyv1.Tokens{}
	if rnd.IntN(2) == 0 {
		t.OutputMost = proto.Uint32(1 + rnd.Uint32N(MaxCount))
	}
	if rnd.IntN(2) == 0 {
		t.CachedWeight = proto.Float64(rnd.Float64())
	}
	return t
}

func randomPrice(rnd *rand.Rand) *policyv1.Price {
	if rnd.IntN(3) == 0 {
		return nil
	}
	p := &policyv1.Price{Currency: []string{"USD", "EUR", "JPY"}[rnd.IntN(3)], Input: randomAmount(rnd), Output: randomAmount(rnd)}
	if rnd.IntN(2) == 0 {
		p.Cached = randomAmount(rnd)
	}
	return p
}

// randomAmount has any number of digits.
func randomAmount(rnd *rand.Rand) *int64 {
	return proto.Int64(rnd.Int64N(int64(MaxPrice)+1) >> rnd.IntN(51))
}

func randomLimits(rnd *rand.Rand) []*policyv1.Limit {
	var out []*policyv1.Limit
	for _, model := range []string{"", "m0", "x", "alias"} {
		out = append(out, randomLimit(rnd, model)...)
	}
	return out
}

// randomLimit is one, or none.
func randomLimit(rnd *rand.Rand, model string) []*policyv1.Limit {
	if rnd.IntN(2) == 0 {
		return nil
	}
	l := &policyv1.Limit{Model: model, Concurrency: proto.Uint32(1 + rnd.Uint32N(9))}
	for _, quota := range []**uint64{&l.TokensPerMinute, &l.RequestsPerDay, &l.TokensPerDay, &l.RequestsPerMonth, &l.TokensPerMonth} {
		if rnd.IntN(3) == 0 {
			*quota = proto.Uint64(1 + rnd.Uint64N(MaxQuota))
		}
	}
	return []*policyv1.Limit{l}
}

// withIssuer gives a set one issuer, of whose subjects eve is revoked.
func withIssuer(set *policyv1.Set) *policyv1.Set {
	set.Issuers = []*policyv1.Issuer{{
		Name: "okta", Issuer: "https://id.example.com", Audience: "spokegate", JwksFile: "/jwks.json", RevokedSubjects: []string{"eve"},
		Limits: []*policyv1.Limit{{Concurrency: proto.Uint32(2)}, {Model: "m0", TokensPerDay: proto.Uint64(MaxCount + 1)}},
	}}
	return set
}
