package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hashOf gives keys of tests hashes that are spread over shards.
func hashOf(id string) []byte {
	h, _ := identity.ParseHash(hashA)
	copy(h[:], id)
	return h[:]
}

// TestCompile tells what a request meets, in testdata/compile.txt: `policy` sets one, `may KEY` shows a key's models and
// the limits of each.
func TestCompile(t *testing.T) {
	var s *Snapshot
	datadriven.RunTest(t, "testdata/compile.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "policy":
			set, err := Parse("p.yaml", []byte(strings.NewReplacer("$A", hashA, "$B", hashB).Replace(d.Input)))
			if err != nil {
				return err.Error() + "\n"
			}
			if s, err = Compile(set, t0); err != nil {
				return err.Error() + "\n"
			}
			var b strings.Builder
			for _, e := range s.Endpoints() {
				fmt.Fprintf(&b, "endpoint %s %v %+v\n", e.Name, e.AllowFields, e.Routing)
			}
			return b.String()
		case "may":
			return may(s, d.CmdArgs[0].Key)
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

func may(s *Snapshot, id string) string {
	var b strings.Builder
	for _, k := range allKeys(s) {
		if k.ID != id {
			continue
		}
		fmt.Fprintf(&b, "team %s, refused now %q, in 2030 %q\n", k.Team.Name, k.Refused(t0), k.Refused(t0.AddDate(4, 0, 0)))
		if k.Networks != nil {
			fmt.Fprintln(&b, "from", k.Networks)
		}
		for _, m := range s.Models(k) {
			if len(m.Targets) == 0 {
				fmt.Fprintf(&b, "%s on %s, in the engine %s, tokens %+v\n", m.Name, m.Endpoint.Name, m.EngineName, m.Tokens)
				if m.Price != nil {
					fmt.Fprintf(&b, "  costs %s %v, cached %v, output %v\n", m.Price.Currency, m.Price.Input, m.Price.Cached, m.Price.Output)
				}
				b.WriteString(met(s.Limits(k, m, m)))
			}
			for _, target := range m.Targets {
				fmt.Fprintf(&b, "%s as %s, weight %d\n", m.Name, target.Model.Name, target.Weight)
				b.WriteString(met(s.Limits(k, m, target.Model)))
			}
		}
	}
	return b.String()
}

// met tells limits, a line each, by what is not 0.
func met(limits []Limit) string {
	var b strings.Builder
	for _, l := range limits {
		fmt.Fprintf(&b, "  %s:", l.ID)
		for _, v := range []struct {
			name  string
			value any
		}{
			{"rate", l.RequestsPerSecond}, {"burst", l.Burst}, {"concurrency", l.Concurrency}, {"tokens/min", l.TokensPerMinute},
			{"requests/day", l.RequestsPerDay}, {"tokens/day", l.TokensPerDay},
			{"requests/month", l.RequestsPerMonth}, {"tokens/month", l.TokensPerMonth},
		} {
			if !reflect.ValueOf(v.value).IsZero() {
				fmt.Fprintf(&b, " %s %v", v.name, v.value)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestZeroValuesRefuse(t *testing.T) {
	m := &Model{Name: "m"}
	var s Snapshot
	for name, k := range map[string]*Key{"nil": nil, "zero": {}, "team without models": {Team: &Team{}}} {
		if k.Allows(m) || len(s.Models(k)) > 0 {
			t.Errorf("%s key may use a model", name)
		}
	}
	if (&Key{Team: &Team{allowed: map[string]bool{"": true}}}).Allows(nil) {
		t.Error("no model is allowed")
	}
	if s.Key(identity.Hash{}) != nil || s.Model("") != nil || s.Keys() != 0 {
		t.Error("the zero snapshot knows something")
	}
	if (&Current{}).Load() != nil {
		t.Error("the zero Current holds something")
	}
}

func TestKeyLookUp(t *testing.T) {
	s := compiled(t, randomSet(rand.New(rand.NewPCG(1, 1)), 500))
	for h, k := range allKeys(s) {
		if found := s.Key(h); found == nil || found.ID != k.ID || found.hash != h {
			t.Fatalf("key %s is not found", k.ID)
		}
		h[31] ^= 1
		if s.Key(h) != nil {
			t.Fatal("a hash that differs in one bit is found")
		}
	}
	var c Current
	changed := c.Changed()
	select {
	case <-changed:
		t.Error("changed before anything was stored")
	default:
	}
	c.Store(s)
	<-changed
	if c.Load() != s || c.Load().Since() != t0 {
		t.Error("Current gives another snapshot")
	}
}

func TestRefusedAtTheMoment(t *testing.T) {
	k := &Key{Expires: t0}
	if k.Refused(t0.Add(-1)) != "" || k.Refused(t0) != "expired" || k.Refused(t0.Add(1)) != "expired" {
		t.Error("a key ends at the moment that Expires names")
	}
	k.Revoked = true
	if k.Refused(t0.Add(-1)) != "revoked" {
		t.Error("revoked goes before all")
	}
}

// TestAgainstOracle compares the look-up with a reading of the set that compiles nothing.
func TestAgainstOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		set := randomSet(rnd, 8)
		s := compiled(t, set)
		for _, k := range Keys(set) {
			found := s.Key(identity.Hash(k.Sha256))
			for _, m := range set.Models {
				asked := s.Model(m.Name)
				if got, want := found.Allows(asked), oracleAllows(set, k, m.Name); got != want {
					t.Fatalf("key %v model %s: %v, want %v\n%v", k, m.Name, got, want, set)
				}
				for _, served := range oracleServed(set, m) { // also of a model that the key may not use
					got := s.Limits(found, asked, s.Model(served.Name))
					if want := oracleLimits(set, k, m, served); !slices.Equal(ids(got), want) {
						t.Fatalf("key %v model %s: %v, want %v", k, m.Name, ids(got), want)
					}
				}
			}
		}
	}
}

func oracleServed(set *policyv1.Set, m *policyv1.Model) []*policyv1.Model {
	if len(m.Targets) == 0 {
		return []*policyv1.Model{m}
	}
	var out []*policyv1.Model
	for _, t := range m.Targets {
		out = append(out, set.Models[slices.IndexFunc(set.Models, func(m *policyv1.Model) bool { return m.Name == t.Model })])
	}
	return out
}

func oracleAllows(set *policyv1.Set, k *policyv1.Key, model string) bool {
	in := func(patterns []string) bool {
		for _, p := range patterns {
			if p == model || p[len(p)-1] == '*' && strings.HasPrefix(model, p[:len(p)-1]) {
				return true
			}
		}
		return false
	}
	for _, t := range set.Teams {
		if t.Name == k.Team {
			return in(t.Models) && (len(k.Models) == 0 || in(k.Models))
		}
	}
	return false
}

func oracleLimits(set *policyv1.Set, k *policyv1.Key, asked, served *policyv1.Model) []string {
	var out []string
	add := func(level, owner string, limits []*policyv1.Limit) {
		for _, l := range limits {
			if l.Model == "" || l.Model == asked.Name || l.Model == served.Name {
				out = append(out, fmt.Sprintf("%s/%d:%s/%d:%s", level, len(owner), owner, len(l.Model), l.Model))
			}
		}
	}
	add("platform", "", set.GetPlatform().GetLimits())
	for _, m := range slices.Compact([]*policyv1.Model{asked, served}) {
		for range m.Limits {
			out = append(out, fmt.Sprintf("model/%d:%s/%d:%s", len(m.Name), m.Name, len(m.Name), m.Name))
		}
	}
	for _, t := range set.Teams {
		if t.Name == k.Team {
			add("team", t.Name, t.Limits)
		}
	}
	add("key", k.Id, k.Limits)
	return out
}

func ids(limits []Limit) []string {
	out := []string{}
	for _, l := range limits {
		out = append(out, l.ID)
	}
	return out
}

// TestLimitsDoNotShareMemory: two keys of one team must not write into each other's limits.
func TestLimitsDoNotShareMemory(t *testing.T) {
	set := randomSet(rand.New(rand.NewPCG(3, 3)), 0)
	one := []*policyv1.Limit{{Concurrency: proto.Uint32(1)}}
	set.Keys = KeyShards([]*policyv1.Key{
		{Id: "ka", Team: "t0", Sha256: hashOf("ka"), Limits: one}, {Id: "kb", Team: "t0", Sha256: hashOf("kb"), Limits: one},
	})
	set.Teams[0].Models = []string{"*"}
	s := compiled(t, set)
	m := s.Model("m0")
	a := s.Limits(s.Key(identity.Hash(hashOf("ka"))), m, m)
	b := s.Limits(s.Key(identity.Hash(hashOf("kb"))), m, m)
	if a[len(a)-1].Owner != "ka" || b[len(b)-1].Owner != "kb" {
		t.Errorf("%v %v", a, b)
	}
}

func TestCounterNamesDoNotCollide(t *testing.T) {
	seen := map[string]string{}
	for _, l := range []Level{Platform, ModelLevel, TeamLevel, KeyLevel, Level(9)} {
		for _, owner := range []string{"", "a", "a/1:b", "1:a", "a/", "/0:", "a/1:b/1:c"} {
			for _, model := range []string{"", "b", "1:b/0:", "b/1:c", "/1:b"} {
				id, what := counter(l, owner, model), fmt.Sprintf("%v %q %q", l, owner, model)
				if other, taken := seen[id]; taken {
					t.Errorf("%s names %s and %s", id, what, other)
				}
				seen[id] = what
			}
		}
	}
}

// allKeys are all keys, by their hash.
func allKeys(s *Snapshot) map[identity.Hash]*Key {
	out := map[identity.Hash]*Key{}
	for _, keys := range s.shards {
		for i := range keys.len() {
			k := s.unfold(keys, i)
			out[k.hash] = k
		}
	}
	return out
}
