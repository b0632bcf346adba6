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

// randomSet is a valid set with four models, three teams and n keys.
func randomSet(rnd *rand.Rand, n int) *policyv1.Set {
	set := &policyv1.Set{Platform: &policyv1.Platform{Limits: randomLimits(rnd)}}
	for i := range 2 {
		set.Endpoints = append(set.Endpoints, &policyv1.Endpoint{Name: fmt.Sprint("e", i)})
	}
	for _, name := range []string{"m0", "m1", "m10", "x"} {
		m := &policyv1.Model{Name: name, Endpoint: fmt.Sprint("e", rnd.IntN(2))}
		if rnd.IntN(2) == 0 {
			m.Limits = []*policyv1.Limit{{Concurrency: proto.Uint32(3)}}
		}
		set.Models = append(set.Models, m)
	}
	some := func() []string {
		all := []string{"m0", "m1", "m*", "m1*", "x", "*"}
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:1+rnd.IntN(3)]
	}
	for i := range 3 {
		set.Teams = append(set.Teams, &policyv1.Team{Name: fmt.Sprint("t", i), Models: some(), Limits: randomLimits(rnd)})
	}
	var keys []*policyv1.Key
	for i := range n {
		k := &policyv1.Key{Id: fmt.Sprint("k", i), Team: fmt.Sprint("t", rnd.IntN(3)), Limits: randomLimits(rnd)}
		k.Sha256 = make([]byte, 32)
		for j := range k.Sha256 {
			k.Sha256[j] = byte(rnd.Uint32())
		}
		// Entries that name nothing of the team are refused, so keep those that do.
		k.Models = slices.DeleteFunc(some(), func(p string) bool {
			return !slices.ContainsFunc(set.Models, func(m *policyv1.Model) bool {
				return matches(p, m.Name) && oracleAllows(set, &policyv1.Key{Team: k.Team}, m.Name)
			})
		})
		keys = append(keys, k)
	}
	set.Keys = KeyShards(keys)
	return set
}

func randomLimits(rnd *rand.Rand) []*policyv1.Limit {
	var out []*policyv1.Limit
	for _, model := range []string{"", "m0", "x"} {
		if rnd.IntN(2) == 0 {
			out = append(out, &policyv1.Limit{Model: model, Concurrency: proto.Uint32(1 + rnd.Uint32N(9))})
		}
	}
	return out
}

// withIssuer adds an issuer of two subjects' worth: eve is revoked.
func withIssuer(set *policyv1.Set) *policyv1.Set {
	set.Issuers = append(set.Issuers, &policyv1.Issuer{
		Name: "okta", Issuer: "https://id.example.com", Audience: "spokegate", JwksFile: "/jwks.json", RevokedSubjects: []string{"eve"},
		Limits: []*policyv1.Limit{{Concurrency: proto.Uint32(2)}, {Model: "m0", TokensPerDay: proto.Uint64(5)}},
	})
	return set
}
