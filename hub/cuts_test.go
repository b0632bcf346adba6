package hub

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

// TestCuts holds each spoke's cut, as it comes of one change after another, against one that is made from nothing.
func TestCuts(t *testing.T) {
	h := opened(t, Config{Database: filepath.Join(t.TempDir(), "hub.db")})
	must(t, h, put(KindSpoke, "a", "{}"), put(KindSpoke, "b", "{}"), put(KindSpoke, "idle", "{}"),
		put(KindEndpoint, "ea", `{"spoke": "a"}`), put(KindEndpoint, "eb", `{"spoke": "b"}`),
		put(KindModel, "ma", `{"endpoint": "ea"}`), put(KindModel, "mb", `{"endpoint": "eb"}`), put(KindModel, "alias", `{"targets": [{"model": "mb"}]}`),
		put(KindTeam, "t", `{"models": ["*"]}`))
	key := func(i int, more string) Change {
		return put(KindKey, fmt.Sprintf("k%d", i), fmt.Sprintf(`{"team": "t", "sha256": "%02x%062x"%s}`, i%256, i, more))
	}
	for i, changes := range [][]Change{
		{key(1, ""), key(2, "")}, {key(1, `, "revoked": true`)}, {put(KindModel, "mc", `{"endpoint": "eb"}`)}, {put(KindEndpoint, "eb", `{"spoke": "a"}`)},
		{key(3, ""), put(KindEndpoint, "eb", `{"spoke": "b"}`)}, {drop(KindKey, "k2")}, {put(KindPlatform, "", `{"limits": [{"concurrency": 5}]}`)},
	} {
		must(t, h, changes...)
		for _, spoke := range []string{"a", "b", "idle"} {
			if i%2 == 1 && spoke == "idle" {
				continue // who does not ask for a while
			}
			got, st := h.Cut(spoke), h.state.Load()
			set, err := got.Set()
			if err != nil {
				t.Fatal(err)
			}
			if want := st.cutFor(spoke); !got.Same(want) || got.Revision().GetNumber() != st.head.Number || got != h.Cut(spoke) {
				t.Fatalf("after %d the cut of %s is %v", i, spoke, set)
			}
			snap, err := policy.Compile(set, newClock().now())
			if err != nil {
				t.Fatalf("spoke %s would refuse it: %v", spoke, err)
			}
			for model, m := range st.layout.models {
				at := st.layout.spokeOf(model)
				here := at == spoke
				if s := snap.Model(model); s == nil || (s.Elsewhere == "") != here || !here && s.Elsewhere != at || here && s.Endpoint == nil && len(m.GetTargets()) == 0 {
					t.Errorf("model %s, which runs in %s, is %+v to %s", model, at, s, spoke)
				}
			}
		}
	}
}

// TestCutsShare: 200 spokes hold the keys once, and those that are away hold no old ones.
func TestCutsShare(t *testing.T) {
	h := opened(t, Config{Database: filepath.Join(t.TempDir(), "hub.db")})
	var list []Change
	for i := range 200 {
		list = append(list, put(KindSpoke, fmt.Sprintf("s%d", i), "{}"))
	}
	list = append(list, put(KindEndpoint, "e", `{"spoke": "s0"}`), put(KindModel, "m", `{"endpoint": "e"}`), put(KindTeam, "t", `{"models": ["m"]}`))
	for i := range 2000 {
		list = append(list, put(KindKey, fmt.Sprintf("k%d", i), fmt.Sprintf(`{"team": "t", "sha256": "%03x%061x"}`, i, i)))
	}
	must(t, h, list...)
	shard := policy.Ref{Kind: policy.KindKeyShard, Name: "7"}
	first, _ := h.Cut("s0").Get(shard)
	before := held()
	for i := range 200 {
		if other, ok := h.Cut(fmt.Sprintf("s%d", i)).Get(shard); !ok || &other.Body[0] != &first.Body[0] {
			t.Fatal("a spoke has a copy of the keys")
		}
	}
	if each := (int64(held()) - int64(before)) / 200; each > 8<<10 {
		t.Errorf("a spoke's cut takes %d bytes, and 2,000 keys are shared", each)
	}
	for i := range 30 { // spoke after spoke goes away, each at another revision
		must(t, h, put(KindKey, "k0", fmt.Sprintf(`{"team": "t", "sha256": "%03x%061x", "labels": {"n": "%d"}}`, 0, 0, i)))
		h.Cut(fmt.Sprintf("s%d", i))
	}
	if grown := int64(held()) - int64(before); grown > 16<<20 {
		t.Errorf("%d MiB are held of revisions that are gone", grown>>20)
	}
	runtime.KeepAlive(first)
}
