package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// TestResolveByWeight: over all numbers of one round, each target gets exactly its weight.
func TestResolveByWeight(t *testing.T) {
	a, b, c := &Model{Name: "a"}, &Model{Name: "b"}, &Model{Name: "c"}
	alias := &Model{Targets: []Target{{a, 3}, {b, 1}, {c, 6}}}
	got := map[string]int{}
	for n := range uint64(30) {
		m := alias.Resolve(n)
		got[m.Name]++
		if alias.Resolve(n+10) != m || alias.Resolve(n) != m {
			t.Errorf("%d: equal numbers pick other targets", n)
		}
	}
	if got["a"] != 9 || got["b"] != 3 || got["c"] != 18 {
		t.Errorf("%v", got)
	}
	if a.Resolve(7) != a {
		t.Error("a model goes to another")
	}
	if m := alias.Resolve(^uint64(0)); m == nil {
		t.Error("the largest number picks nothing")
	}
}

// TestAliasSemantics: the name that is asked for is what is permitted; limits of both count, each once.
func TestAliasSemantics(t *testing.T) {
	set, err := Parse("p", []byte(`
platform: {tokens: {output_most: 500, cached_weight: 0}, limits: [{model: chat, concurrency: 1}, {model: big, concurrency: 2}, {concurrency: 3}]}
endpoints: [{name: e}]
models:
  - {name: chat, targets: [{model: big, weight: 3}, {model: small}], limits: [{concurrency: 4}]}
  - {name: big, endpoint: e, engine_name: /models/big-lora, limits: [{concurrency: 5}], tokens: {cached_weight: 0.5}}
  - {name: small, endpoint: e, tokens: {output_most: 9}}
teams: [{name: t, models: [chat], limits: [{model: small, concurrency: 6}, {model: chat, concurrency: 7}]}]
keys: [{id: k, team: t, sha256: `+hashA+`}]`))
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(t, set)
	h, _ := identity.ParseHash(hashA)
	k, chat, big, small := s.Key(h), s.Model("chat"), s.Model("big"), s.Model("small")
	if !k.Allows(chat) || k.Allows(big) || k.Allows(small) || len(s.Models(k)) != 1 || s.Models(k)[0] != chat {
		t.Error("what is permitted is not the alias alone")
	}
	for _, tc := range []struct {
		asked, model *Model
		want         []int // concurrencies, in order
	}{{chat, big, []int{1, 2, 3, 4, 5, 7}}, {chat, small, []int{1, 3, 4, 6, 7}}, {big, big, []int{2, 3, 5}}, {small, small, []int{3, 6}}} {
		var got []int
		for _, l := range s.Limits(k, tc.asked, tc.model) {
			got = append(got, l.Concurrency)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s as %s: %v", tc.asked.Name, tc.model.Name, got)
		}
	}
	for _, tc := range []struct {
		m    *Model
		want string
	}{{big, "/models/big-lora {500 0.5}"}, {small, "small {9 0}"}, {chat, " {500 0}"}} {
		if got := fmt.Sprint(tc.m.EngineName, " ", tc.m.Tokens); got != tc.want {
			t.Errorf("%s: %s", tc.m.Name, got)
		}
	}
	if chat.Endpoint != nil || chat.Resolve(0) != big || chat.Resolve(2) != big || chat.Resolve(3) != small {
		t.Error("the alias does not go where its targets say")
	}
}

// TestLimitIDsAreDifferent: a limiter counts each id of a request once, and would count twice what came twice.
func TestLimitIDsAreDifferent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 7))
	for range 100 {
		set := withIssuer(randomSet(rnd, 3))
		s := compiled(t, set)
		callers := []*Key{s.Subject(s.Issuers()[0], "bob", "t1", nil)}
		for _, k := range allKeys(s) {
			callers = append(callers, k)
		}
		for _, k := range callers {
			for _, asked := range s.models {
				targets := asked.Targets
				if len(targets) == 0 {
					targets = []Target{{asked, 1}}
				}
				for _, target := range targets {
					all := ids(s.Limits(k, asked, target.Model))
					if slices.Sort(all); len(slices.Compact(slices.Clone(all))) != len(all) {
						t.Fatalf("%s %s: %v", k.ID, asked.Name, all)
					}
				}
			}
		}
	}
}

// TestLimitsAllocate: once at most, for a key with limits of its own.
func TestLimitsAllocate(t *testing.T) {
	set := randomSet(rand.New(rand.NewPCG(1, 2)), 2)
	set.Teams[0].Models = []string{"*"}
	keys := Keys(set)
	keys[0].Team, keys[0].Models, keys[0].Limits = "t0", nil, nil
	keys[1].Team, keys[1].Models, keys[1].Limits = "t0", nil, []*policyv1.Limit{{Concurrency: proto.Uint32(1)}}
	s := compiled(t, set)
	alias := s.Model("alias")
	for i, want := range []float64{0, 1} {
		k := s.Key(identity.Hash(keys[i].Sha256))
		if got := testing.AllocsPerRun(100, func() { s.Limits(k, alias, alias.Targets[0].Model) }); got != want {
			t.Errorf("%v allocations, want %v", got, want)
		}
	}
}
