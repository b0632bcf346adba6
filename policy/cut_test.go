package policy

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// TestCutsAgainstMaps: a cut is what a map of resources is, however it came about; equal content is one digest and shares its
// parts, and the difference of two is what must change.
func TestCutsAgainstMaps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	c, want := (&Cut{}).Next(nil, nil, nil), map[Ref]string{}
	seen := map[string]string{}
	for n := range uint64(500) {
		var changed []Resource
		var removed []Ref
		before := maps.Clone(want)
		for range 1 + rnd.IntN(3) {
			ref := Ref{Kinds[rnd.IntN(len(Kinds))], fmt.Sprint(rnd.IntN(3))}
			if rnd.IntN(3) == 0 {
				removed = append(removed, ref)
				delete(want, ref)
			}
		}
		for range rnd.IntN(4) { // what is removed and changed in one step is there
			r := NewResource(Kinds[rnd.IntN(len(Kinds))], fmt.Sprint(rnd.IntN(3)), []byte{byte(rnd.IntN(3))})
			changed = append(changed, r)
			want[r.Ref] = r.Version
		}
		next := c.Next(&policyv1.Revision{Number: n, Message: "m"}, changed, removed)
		got := map[Ref]string{}
		for r := range next.All() {
			got[r.Ref] = r.Version
		}
		if !maps.Equal(got, want) || next.Len() != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if !bytes.Equal(next.Revision().GetDigest(), next.Digest()) || next.Revision().GetNumber() != n {
			t.Fatalf("revision %v", next.Revision())
		}
		text := fmt.Sprint(want) // fmt sorts maps
		if other, known := seen[string(next.Digest())]; known && other != text {
			t.Fatalf("one digest for %s and %s", other, text)
		}
		seen[string(next.Digest())] = text
		if same := maps.Equal(before, want); same != next.Same(c) {
			t.Fatalf("the same: %v, as maps %v", next.Same(c), same)
		}
		if back := follow(next, c); !back.Same(c) {
			t.Fatal("what the difference says does not lead back")
		}
		all := slices.Collect(next.All())
		if !slices.IsSortedFunc(all, func(a, b Resource) int {
			if a.Kind != b.Kind {
				return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind)
			}
			return bytes.Compare([]byte(a.Name), []byte(b.Name))
		}) {
			t.Fatal("not in order")
		}
		c = next
	}
}

// TestCutOfASet: nothing is lost on the way through a cut.
func TestCutOfASet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 11))
	for range 50 {
		set := inOrder(randomSet(rnd, 10))
		cut := NewCut(set)
		set.Revision = cut.Revision()
		if got := inOrder(set); !proto.Equal(got, set) {
			t.Fatalf("got %v\nwant %v", got, set)
		}
		for r := range cut.All() {
			if name, err := nameIn(r.Kind, r.Body); err != nil || name != r.Name {
				t.Fatalf("%v says that it is %q, %v", r.Ref, name, err)
			}
		}
	}
}

// FuzzDecodeSet: what is on a disk, or comes from a hub, may be anything.
func FuzzDecodeSet(f *testing.F) {
	c := NewCut(randomSet(rand.New(rand.NewPCG(1, 1)), 3))
	whole, err := encodeSet(c.Revision(), c.All(), nil)
	if err != nil {
		f.Fatal(err)
	}
	step, err := encodeSet(c.Revision(), c.Of(KindTeam), []Ref{{KindModel, "x"}, {KindPlatform, ""}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(step)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSet(data)
		if err != nil {
			return
		}
		c := (&Cut{}).Next(s.revision, s.changed, s.removed)
		again, err := encodeSet(c.Revision(), c.All(), nil)
		if err != nil {
			return // a revision's message that is not UTF-8
		}
		s, err = decodeSet(again)
		if err != nil || !(&Cut{}).Next(s.revision, s.changed, s.removed).Same(c) {
			t.Fatalf("encoded again it is another: %v", err)
		}
		_, _ = CompileCut(nil, c, t0)
	})
}
