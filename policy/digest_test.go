package policy

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

func TestDigestIgnoresOrderAndRevision(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		set := randomSet(rnd, 20)
		want := Digest(set)
		other := proto.CloneOf(set)
		other.Revision = &policyv1.Revision{Number: 9, Message: "x"}
		rnd.Shuffle(len(other.Models), func(i, j int) { other.Models[i], other.Models[j] = other.Models[j], other.Models[i] })
		rnd.Shuffle(len(other.Teams), func(i, j int) { other.Teams[i], other.Teams[j] = other.Teams[j], other.Teams[i] })
		slices.Reverse(other.Endpoints)
		slices.Reverse(other.Keys)
		slices.Reverse(other.Issuers)
		for _, s := range other.Keys {
			slices.Reverse(s.Keys)
		}
		if !bytes.Equal(Digest(other), want) {
			t.Fatal("the order changes the digest")
		}
	}
}

func TestDigestSeesEachChange(t *testing.T) {
	base := randomSet(rand.New(rand.NewPCG(6, 6)), 3)
	seen := map[string]string{string(Digest(base)): "base"}
	for name, change := range map[string]func(*policyv1.Set){
		"no platform":      func(s *policyv1.Set) { s.Platform = nil },
		"a model less":     func(s *policyv1.Set) { s.Models = s.Models[1:] },
		"another endpoint": func(s *policyv1.Set) { s.Models[0].Endpoint = "e9" },
		"a team renamed":   func(s *policyv1.Set) { s.Teams[0].Name = "z" },
		"a key revoked":    func(s *policyv1.Set) { s.Keys[0].Keys[0].Revoked = true },
		"a key less":       func(s *policyv1.Set) { s.Keys = s.Keys[1:] },
		"routing set to its default": func(s *policyv1.Set) {
			s.Endpoints[0].Routing = &policyv1.Routing{OverlapWeight: proto.Float64(1)}
		},
		"revoked ones may finish": func(s *policyv1.Set) { s.Platform.OnRevoke = policyv1.OnRevoke_ON_REVOKE_FINISH },
		"a token counts less":     func(s *policyv1.Set) { s.Platform.Tokens = &policyv1.Tokens{CachedWeight: proto.Float64(0.123)} },
		"an adapter":              func(s *policyv1.Set) { s.Models[0].EngineName = "lora" },
		"a target": func(s *policyv1.Set) {
			s.Models[0].Targets = append(s.Models[0].Targets, &policyv1.Target{Model: "m0"})
		},
		"a target's weight": func(s *policyv1.Set) {
			s.Models[0].Targets = append(s.Models[0].Targets, &policyv1.Target{Model: "m0", Weight: proto.Uint32(1)})
		},
		"a price": func(s *policyv1.Set) {
			s.Models[0].Price = &policyv1.Price{Currency: "USD", Input: proto.Int64(7), Output: proto.Int64(0)}
		},
		"a price of cached tokens": func(s *policyv1.Set) {
			s.Models[0].Price = &policyv1.Price{Currency: "USD", Input: proto.Int64(7), Output: proto.Int64(0), Cached: proto.Int64(7)}
		},
		"a network":           func(s *policyv1.Set) { k := s.Keys[0].Keys[0]; k.Networks = append(k.Networks, "192.0.2.8") },
		"a label":             func(s *policyv1.Set) { s.Keys[0].Keys[0].Labels = map[string]string{"x": "y"} },
		"another label":       func(s *policyv1.Set) { s.Keys[0].Keys[0].Labels = map[string]string{"xy": ""} },
		"a quota":             func(s *policyv1.Set) { s.Teams[0].Limits = []*policyv1.Limit{{TokensPerDay: proto.Uint64(1)}} },
		"another quota":       func(s *policyv1.Set) { s.Teams[0].Limits = []*policyv1.Limit{{TokensPerMonth: proto.Uint64(1)}} },
		"an issuer":           func(s *policyv1.Set) { withIssuer(s) },
		"an issuer's subject": func(s *policyv1.Set) { withIssuer(s).Issuers[0].RevokedSubjects = nil },
		"not UTF-8":           func(s *policyv1.Set) { s.Teams[0].Name = "\xff" },
	} {
		set := proto.CloneOf(base)
		change(set)
		d := string(Digest(set))
		if other, taken := seen[d]; taken {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
}

func TestKeyShards(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	var keys []*policyv1.Key
	for range 5000 {
		k := &policyv1.Key{Sha256: make([]byte, 32)}
		for i := range k.Sha256 {
			k.Sha256[i] = byte(rnd.Uint32())
		}
		keys = append(keys, k)
	}
	first := keys[0]
	shards := KeyShards(keys)
	if keys[0] != first {
		t.Error("the caller's slice was sorted")
	}
	n, last := 0, -1
	for _, s := range shards {
		if int(s.Number) <= last || s.Number >= Shards || len(s.Keys) == 0 {
			t.Fatalf("shard %d after %d with %d keys", s.Number, last, len(s.Keys))
		}
		last = int(s.Number)
		n += len(s.Keys)
		for _, k := range s.Keys {
			if uint32(k.Sha256[0])*16+uint32(k.Sha256[1])/16 != s.Number {
				t.Fatalf("%x is in shard %d", k.Sha256, s.Number)
			}
		}
	}
	if n != len(keys) || len(Keys(&policyv1.Set{Keys: shards})) != n {
		t.Errorf("%d keys went in, %d came out", len(keys), n)
	}
}
