package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	for _, k := range s.keys {
		if k.ID != id {
			continue
		}
		fmt.Fprintf(&b, "team %s, refused now %q, in 2030 %q\n", k.Team.Name, k.Refused(t0), k.Refused(t0.AddDate(4, 0, 0)))
		for _, m := range s.Models(k) {
			fmt.Fprintf(&b, "%s on %s\n", m.Name, m.Endpoint.Name)
			for _, l := range s.Limits(k, m) {
				fmt.Fprintf(&b, "  %s: rate %g burst %d concurrency %d\n", l.ID, l.RequestsPerSecond, l.Burst, l.Concurrency)
			}
		}
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
	if s.Key(identity.Hash{}) != nil || s.Model("") != nil || s.Endpoint("") != nil || s.Keys() != 0 {
		t.Error("the zero snapshot knows something")
	}
	if (&Current{}).Load() != nil {
		t.Error("the zero Current holds something")
	}
}

func TestKeyLookUp(t *testing.T) {
	s := compiled(t, randomSet(rand.New(rand.NewPCG(1, 1)), 500))
	for h, k := range s.keys {
		if s.Key(h) != k {
			t.Fatalf("key %s is not found", k.ID)
		}
		h[31] ^= 1
		if s.Key(h) != nil {
			t.Fatal("a hash that differs in one bit is found")
		}
	}
	var c Current
	c.Store(s)
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
				if got, want := found.Allows(s.Model(m.Name)), oracleAllows(set, k, m.Name); got != want {
					t.Fatalf("key %v model %s: %v, want %v\n%v", k, m.Name, got, want, set)
				}
				if !found.Allows(s.Model(m.Name)) {
					continue
				}
				got := s.Limits(found, s.Model(m.Name))
				if fmt.Sprint(ids(got)) != fmt.Sprint(oracleLimits(set, k, m)) {
					t.Fatalf("key %v model %s: %v, want %v", k, m.Name, ids(got), oracleLimits(set, k, m))
				}
			}
		}
	}
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

func oracleLimits(set *policyv1.Set, k *policyv1.Key, m *policyv1.Model) []string {
	var out []string
	add := func(level, owner string, limits []*policyv1.Limit) {
		for _, l := range limits {
			if l.Model == "" || l.Model == m.Name {
				out = append(out, fmt.Sprintf("%s/%d:%s/%d:%s", level, len(owner), owner, len(l.Model), l.Model))
			}
		}
	}
	add("platform", "", set.GetPlatform().GetLimits())
	for range m.Limits {
		out = append(out, fmt.Sprintf("model/%d:%s/%d:%s", len(m.Name), m.Name, len(m.Name), m.Name))
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
	a := s.Limits(s.Key(identity.Hash(hashOf("ka"))), m)
	b := s.Limits(s.Key(identity.Hash(hashOf("kb"))), m)
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

// TestCompileRefuses changes a good set as no file could, or as a file could too: Compile trusts nobody.
func TestCompileRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*policyv1.Set)
		want   string
	}{
		"short hash":      {func(s *policyv1.Set) { s.Keys[0].Keys[0].Sha256 = []byte{1, 2, 3} }, "keys[k0].sha256: is not a SHA-256: want 32 bytes"},
		"wrong shard":     {func(s *policyv1.Set) { s.Keys[0].Number++ }, "belongs to shard"},
		"shard too high":  {func(s *policyv1.Set) { s.Keys = append(s.Keys, &policyv1.KeyShard{Number: 4096}) }, "keys[shard 4096]: element 1: want a number below 4096, each once"},
		"shard twice":     {func(s *policyv1.Set) { s.Keys = append(s.Keys, &policyv1.KeyShard{Number: s.Keys[0].Number}) }, "each once"},
		"tokens a minute": {func(s *policyv1.Set) { s.Platform = limited(&policyv1.Limit{TokensPerMinute: proto.Uint64(5)}) }, "platform.limits[0].tokens_per_minute: limits of tokens are not supported yet"},
		"NaN":             {func(s *policyv1.Set) { s.Platform = limited(rated(math.NaN())) }, "platform.limits[0].requests_per_second: want from"},
		"infinite":        {func(s *policyv1.Set) { s.Platform = limited(rated(math.Inf(1))) }, "platform.limits[0].requests_per_second: want from"},
		"negative":        {func(s *policyv1.Set) { s.Platform = limited(rated(-1)) }, "platform.limits[0].requests_per_second: want from"},
		"NaN weight":      {func(s *policyv1.Set) { s.Endpoints[0].Routing = &policyv1.Routing{OverlapWeight: proto.Float64(math.NaN())} }, "overlap_weight: want a number from 0 to 1000"},
		"NaN temperature": {func(s *policyv1.Set) { s.Endpoints[0].Routing = &policyv1.Routing{Temperature: proto.Float64(math.NaN())} }, "temperature: want a number from 0 to 1000"},
		"bad time":        {func(s *policyv1.Set) { s.Keys[0].Keys[0].ExpiresAt = &timestamppb.Timestamp{Seconds: math.MaxInt64} }, "expires: want a time after 1970"},
		"name not UTF-8":  {func(s *policyv1.Set) { s.Teams[0].Name = "\xff" }, "teams[0].name: is not a name"},
		"wrong digest":    {func(s *policyv1.Set) { s.Revision = &policyv1.Revision{Digest: make([]byte, 32)} }, "revision.digest: does not fit the content"},
		"two keys, one hash": {func(s *policyv1.Set) {
			k := proto.CloneOf(s.Keys[0].Keys[0])
			k.Id = "other"
			s.Keys[0].Keys = append(s.Keys[0].Keys, k)
		}, `keys[other].sha256: this is also the hash of key "k0"`},
	} {
		t.Run(name, func(t *testing.T) {
			set := randomSet(rand.New(rand.NewPCG(1, 2)), 1)
			tc.change(set)
			s, err := Compile(set, t0)
			if s != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestCompileOfNothingRefusesEverybody(t *testing.T) {
	for _, set := range []*policyv1.Set{nil, {}} {
		s, err := Compile(set, t0)
		if err != nil {
			t.Fatal(err)
		}
		if s.Keys() != 0 || len(s.Endpoints()) != 0 || s.Revision() != 0 {
			t.Error("something came of nothing")
		}
	}
}

func limited(l *policyv1.Limit) *policyv1.Platform {
	return &policyv1.Platform{Limits: []*policyv1.Limit{l}}
}

func rated(r float64) *policyv1.Limit { return &policyv1.Limit{RequestsPerSecond: &r} }

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
