package policy

import (
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/identity"
)

// TestRoutingByDefault: an endpoint that says nothing sheds nothing, and an empty part says as much as none.
func TestRoutingByDefault(t *testing.T) {
	want := Routing{OverlapWeight: 16, MissWeight: 1, BlockBytes: 64, Tiers: Tiers{0.75, 0.25, 0.5}, Split: Split{512, 0.9}}
	for _, r := range []*policyv1.Routing{nil, {}, {Tiers: &policyv1.Tiers{}, Busy: &policyv1.Busy{}, Split: &policyv1.Split{}}} {
		if got := compileRouting(r); got != want {
			t.Errorf("%v: %+v", r, got)
		}
	}
	zero := &policyv1.Routing{OverlapWeight: proto.Float64(0), Tiers: &policyv1.Tiers{Disk: proto.Float64(0)}, Split: &policyv1.Split{CachedShare: proto.Float64(0)}}
	want.OverlapWeight, want.Tiers.Disk, want.Split.CachedShare = 0, 0, 0
	if got := compileRouting(zero); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestFlags: a key may what it or its team may. Who is nobody may nothing.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		key           *Key
		shed, explain bool
	}{
		{nil, false, false}, {&Key{}, false, false}, {&Key{Team: &Team{}}, false, false},
		{&Key{shed: true}, true, false}, {&Key{explain: true, Team: &Team{}}, false, true},
		{&Key{Team: &Team{shed: true}}, true, false}, {&Key{Team: &Team{explain: true}}, false, true},
	} {
		if c.key.Sheddable() != c.shed || c.key.MayExplain() != c.explain {
			t.Errorf("%+v: sheddable %v, explain %v", c.key, c.key.Sheddable(), c.key.MayExplain())
		}
	}
	s, err := Parse("p.yaml", []byte(`
models: [{name: m, endpoint: e}]
endpoints: [{name: e}]
teams: [{name: t, models: [m], sheddable: true}, {name: u, models: [m], explain: true}]
keys:
  - {id: k, team: t, explain: true, sha256: `+hex.EncodeToString(hashOf("k"))+`}
  - {id: l, team: u, sheddable: true, sha256: `+hex.EncodeToString(hashOf("l"))+`}
  - {id: n, team: t, sha256: `+hex.EncodeToString(hashOf("n"))+`}
`))
	if err != nil {
		t.Fatal(err)
	}
	snap := compiled(t, s)
	for id, want := range map[string][2]bool{"k": {true, true}, "l": {true, true}, "n": {true, false}} {
		k := snap.Key(identity.Hash(hashOf(id)))
		if got := [2]bool{k.Sheddable(), k.MayExplain()}; got != want {
			t.Errorf("key %s: sheddable and explain are %v, want %v", id, got, want)
		}
	}
}
