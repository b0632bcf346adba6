package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// TestCompiledByChangeAsWhole changes policies at random, well and badly: what is compiled from the one before is what is compiled
// from nothing, and so is what is wrong with it.
func TestCompiledByChangeAsWhole(t *testing.T) {
	good, bad := 0, 0
	for run := range uint64(12) {
		rnd := rand.New(rand.NewPCG(run, 77))
		set := randomSet(rnd, 12)
		s := compiled(t, set)
		for range 25 {
			next := proto.CloneOf(set)
			for range 1 + rnd.IntN(2) {
				mutate(rnd, next)
			}
			cut := NewCut(next)
			whole, wrong := CompileCut(nil, cut, t0)
			got, err := CompileCut(s, follow(s.Cut(), cut), t0)
			if problemsOf(wrong) != problemsOf(err) {
				t.Fatalf("run %d: by change: %v\nas a whole: %v", run, err, wrong)
			}
			if err != nil {
				bad++
				continue
			}
			good++
			if a, b := dump(whole), dump(got); a != b {
				t.Fatalf("run %d: by change\n%s\nas a whole\n%s", run, b, a)
			}
			set, s = next, got
		}
	}
	if good < 100 || bad < 50 {
		t.Errorf("%d changes were good, %d bad: too few to say anything", good, bad)
	}
}

// follow comes to a cut by what changes.
func follow(from, to *Cut) *Cut {
	changed, removed := from.Diff(to)
	return from.Next(to.Revision(), changed, removed)
}

// problemsOf are the problems, without their order. Whether one id is there twice is looked at in good shards alone, so it is
// told only where nothing else is wrong.
func problemsOf(err error) string {
	var ps Problems
	if !errors.As(err, &ps) {
		return fmt.Sprint(err)
	}
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.Error())
	}
	slices.Sort(lines)
	taken := func(line string) bool { return strings.Contains(line, "is taken by another before it") }
	if rest := slices.DeleteFunc(slices.Clone(lines), taken); len(rest) > 0 {
		lines = rest
	}
	return strings.Join(slices.Compact(lines), "\n")
}

// dump is all that a snapshot says.
func dump(s *Snapshot) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Digest(), s.Keys(), s.CutsRevoked(), len(s.Issuers()))
	all := slices.SortedFunc(maps.Values(allKeys(s)), func(a, b *Key) int { return cmp.Compare(a.ID, b.ID) })
	for _, k := range all {
		again := s.Key(k.hash)
		fmt.Fprintln(&b, k.ID, k.Team.Name, k.Revoked, k.Expires, k.Networks, k.Labels, k.narrow, k.Sheddable(), k.MayExplain(), again.ID, s.Revoked(k.ID), s.Knows(k.ID))
		for _, m := range s.Models(k) {
			fmt.Fprint(&b, " ", m.Name, ids(s.Limits(k, m, m.Resolve(1))))
		}
	}
	return b.String()
}

// mutate does one thing to a set.
func mutate(rnd *rand.Rand, set *policyv1.Set) {
	keys := Keys(set)
	k := keys[rnd.IntN(len(keys))]
	switch rnd.IntN(14) {
	case 0, 1, 2:
		k.Revoked = !k.Revoked
	case 3, 4:
		keys = append(keys, randomKey(rnd, set, 100+rnd.IntN(100)))
	case 5:
		keys = slices.DeleteFunc(keys, func(o *policyv1.Key) bool { return o == k })
	case 6:
		k.Team = fmt.Sprint("t", rnd.IntN(4)) // there are three
	case 7:
		k.Id = keys[rnd.IntN(len(keys))].Id
	case 8:
		i := rnd.IntN(len(set.Teams))
		set.Teams = slices.Delete(set.Teams, i, i+1)
		set.Teams = append(set.Teams, &policyv1.Team{Name: fmt.Sprint("t", rnd.IntN(3)), Models: somePatterns(rnd)})
	case 9:
		set.Models[rnd.IntN(len(set.Models))].Name = fmt.Sprint("m", rnd.IntN(12))
	case 10:
		set.Teams[rnd.IntN(len(set.Teams))].Models = somePatterns(rnd)
	case 11:
		set.Platform.Limits = randomLimits(rnd)
	case 12:
		set.Endpoints[0].Routing = randomRouting(rnd)
	case 13:
		k.Labels = map[string]string{"a": fmt.Sprint(rnd.IntN(3))}
	}
	if n := len(keys); n > 1 {
		set.Keys = KeyShards(keys)
	}
	// A cut has one of each name, and so have the sets that are compared.
	set.Models = once(set.Models, (*policyv1.Model).GetName)
	set.Teams = once(set.Teams, (*policyv1.Team).GetName)
}

func once[M any](list []M, name func(M) string) []M {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(m M) bool {
		n := name(m)
		defer func() { seen[n] = true }()
		return seen[n]
	})
}

// TestResourcesOfOthers: what comes from elsewhere may be mangled in every way.
func TestResourcesOfOthers(t *testing.T) {
	set := randomSet(rand.New(rand.NewPCG(1, 2)), 3)
	s := compiled(t, set)
	for name, c := range map[string]struct {
		r    Resource
		want string
	}{
		"no message":     {NewResource(KindTeam, "t9", []byte{0xff}), "teams[t9]: cannot be read: "},
		"another's name": {Encode(KindTeam, "t9", &policyv1.Team{Name: "t0"}), `teams[t9]: is another's: "t0"`},
		"no shard":       {NewResource(KindKeyShard, "5000", []byte{0x08, 0x88, 0x27}), "keys[shard 5000]: want a number below 4096"},
		"another's key":  {EncodeShard(&policyv1.KeyShard{Number: 7, Keys: []*policyv1.Key{{Id: "a", Team: "t0", Sha256: hashOf("a")}}}), "keys[shard 7]: key \"a\" belongs to shard "},
		"no name":        {NewResource(KindKeyShard, "x", nil), `keys[shard x]: is another's: "0"`},
		"elsewhere and here": {Encode(KindModel, "y", &policyv1.Model{Name: "y", Elsewhere: "b", Endpoint: "e0"}),
			"models[y].elsewhere: a model that another spoke serves has neither an endpoint nor targets here"},
		"to elsewhere": {Encode(KindModel, "m5", &policyv1.Model{Name: "m5", Elsewhere: "b c"}), "models[m5].elsewhere: is not a name: "},
	} {
		_, err := CompileCut(s, s.Cut().Next(nil, []Resource{c.r}, nil), t0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unknown := s.Cut().Next(nil, []Resource{NewResource("Moon", "x", nil)}, []Ref{{"Sun", "y"}})
	if !unknown.Same(s.Cut()) {
		t.Error("kinds of another release are not left out")
	}
}

// TestElsewhere: a model that another spoke serves may be named, and is nobody's to use here.
func TestElsewhere(t *testing.T) {
	set := &policyv1.Set{
		Endpoints: []*policyv1.Endpoint{{Name: "e"}},
		Models:    []*policyv1.Model{{Name: "here", Endpoint: "e"}, {Name: "there", Elsewhere: "spoke-b"}},
		Teams:     []*policyv1.Team{{Name: "t", Models: []string{"there", "here"}}},
		Keys:      KeyShards([]*policyv1.Key{{Id: "k", Team: "t", Sha256: hashOf("k")}}),
	}
	s := compiled(t, set)
	k := s.keyByID("k")
	if got := s.Models(k); len(got) != 1 || got[0].Name != "here" {
		t.Errorf("it is shown %v", got)
	}
	if m := s.Model("there"); m.Elsewhere != "spoke-b" || m.Endpoint != nil || !k.Allows(m) {
		t.Errorf("%+v", m)
	}
	set.Models = append(set.Models, &policyv1.Model{Name: "alias", Targets: []*policyv1.Target{{Model: "there"}}})
	if _, err := Compile(set, t0); err == nil || !strings.Contains(err.Error(), `models[alias].targets[0].model: "there" is served elsewhere`) {
		t.Errorf("%v", err)
	}
}

// manyKeys is a policy of so many keys that say nothing of themselves.
func manyKeys(n int) *policyv1.Set {
	set := &policyv1.Set{
		Endpoints: []*policyv1.Endpoint{{Name: "e"}}, Models: []*policyv1.Model{{Name: "m", Endpoint: "e"}},
		Revision: &policyv1.Revision{Number: 1},
	}
	for i := range 1000 {
		set.Teams = append(set.Teams, &policyv1.Team{Name: fmt.Sprint("team-", i), Models: []string{"*"}})
	}
	keys := make([]*policyv1.Key, n)
	for i := range keys {
		keys[i] = &policyv1.Key{Id: fmt.Sprint("key-", i), Team: fmt.Sprint("team-", i%1000), Sha256: nthHash(i)}
	}
	set.Keys = KeyShards(keys)
	return set
}

func nthHash(i int) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(i))
	sum := sha256.Sum256(b[:])
	return sum[:]
}

// TestSizeOfKeys: what a key takes once it is compiled, all indexes included, beside the encoded one.
func TestSizeOfKeys(t *testing.T) {
	const n = 100_000
	cut := NewCut(manyKeys(n))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := CompileCut(nil, cut, t0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	encoded := 0
	for r := range cut.Of(KindKeyShard) {
		encoded += len(r.Body)
	}
	each := (float64(after.HeapAlloc) - float64(before.HeapAlloc) + float64(encoded)) / n
	t.Logf("%.0f bytes a key, of which %.0f encoded", each, float64(encoded)/n)
	if each > 200 {
		t.Errorf("a key takes %.0f bytes, want at most 200", each)
	}
	runtime.KeepAlive(s)
}

func BenchmarkLookUp(b *testing.B) {
	const n = 1_000_000
	s, err := CompileCut(nil, NewCut(manyKeys(n)), t0)
	if err != nil {
		b.Fatal(err)
	}
	hashes := make([]identity.Hash, 1<<12)
	for i := range hashes {
		hashes[i] = identity.Hash(nthHash(i * 239))
	}
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if s.Key(hashes[i&(len(hashes)-1)]) == nil {
				b.Fatal("not found")
			}
		}
	})
	b.Run("revoke", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r, _ := s.Cut().Get(Ref{KindKeyShard, "17"})
			shard := &policyv1.KeyShard{}
			_ = proto.Unmarshal(r.Body, shard)
			shard.Keys[0].Revoked = !shard.Keys[0].Revoked
			s, err = CompileCut(s, s.Cut().Next(&policyv1.Revision{}, []Resource{EncodeShard(shard)}, nil), t0)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
