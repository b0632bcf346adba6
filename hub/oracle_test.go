package hub

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// oracle is the hub, slowly: everything of every revision.
type oracle struct {
	revisions []map[[2]string]string // [0]: nothing; bodies by kind and name
}

func (o *oracle) now() map[[2]string]string { return o.revisions[len(o.revisions)-1] }

// set is the policy of a state, in one piece.
func setOf(t testing.TB, state map[[2]string]string) *policyv1.Set {
	t.Helper()
	set, keys := &policyv1.Set{}, []*policyv1.Key(nil)
	for id, raw := range state {
		if Kind(id[0]) == KindSpoke {
			continue
		}
		th, err := readThing(Kind(id[0]), id[1], []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		switch m := th.message.(type) {
		case *policyv1.Platform:
			set.Platform = m
		case *policyv1.Model:
			set.Models = append(set.Models, m)
		case *policyv1.Endpoint:
			set.Endpoints = append(set.Endpoints, m)
		case *policyv1.Team:
			set.Teams = append(set.Teams, m)
		case *policyv1.Issuer:
			set.Issuers = append(set.Issuers, m)
		case *policyv1.Key:
			keys = append(keys, m)
		}
	}
	set.Keys = policy.KeyShards(keys)
	return set
}

// good judges a state whole.
func (o *oracle) good(t *testing.T, state map[[2]string]string) bool {
	if _, err := policy.Compile(setOf(t, state), newClock().now()); err != nil {
		return false
	}
	for id, raw := range state {
		b, _ := readBody([]byte(raw))
		if _, ok := state[[2]string{"spoke", b.text("spoke")}]; Kind(id[0]) == KindEndpoint && !ok {
			return false
		}
		if had, ok := o.now()[id]; ok && Kind(id[0]) == KindKey { // a key's hash never changes
			if was, _ := readBody([]byte(had)); was.text("sha256") != b.text("sha256") {
				return false
			}
		}
	}
	return true
}

// compare holds a hub against the oracle: all revisions in diffs from random others, the lists, and the cut.
func (o *oracle) compare(t *testing.T, h *Hub, rnd *rand.Rand) {
	t.Helper()
	head := uint64(len(o.revisions) - 1)
	if h.Head().Number != head {
		t.Fatalf("at revision %d, want %d", h.Head().Number, head)
	}
	a, b := uint64(rnd.IntN(len(o.revisions))), uint64(rnd.IntN(len(o.revisions)))
	d, err := h.Diff(context.Background(), admin, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := asMap(d), difference(o.revisions[a], o.revisions[b]); !maps.Equal(got, want) {
		t.Fatalf("diff(%d, %d)\ngot  %v\nwant %v", a, b, got, want)
	}
	for _, kind := range Kinds {
		list, more, err := h.List(context.Background(), admin, kind, Page{Limit: MaxPage})
		if err != nil || more {
			t.Fatal(err, more)
		}
		var got, want []string
		for _, ob := range list {
			got = append(got, ob.Name+string(ob.Body))
		}
		for id, raw := range o.now() {
			if id[0] == string(kind) {
				want = append(want, id[1]+raw)
			}
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Fatalf("list of %s\ngot  %v\nwant %v", kind, got, want)
		}
	}
	cut := h.state.Load().cut
	if set := setOf(t, o.now()); !bytes.Equal(cut.Digest(), policy.Digest(set)) {
		got, _ := cut.Set()
		t.Fatalf("the cut is another\ngot  %v\nwant %v", got, proto.MarshalOptions{}.Size(set))
	}
	r, err := h.Revision(context.Background(), admin, head)
	if err != nil || r.Digest != fmt.Sprintf("%x", cut.Digest()) {
		t.Fatal(r, err)
	}
	if own := h.Cut("a"); own != nil && rnd.IntN(4) == 0 {
		set, err := own.Set()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policy.Compile(set, newClock().now()); err != nil {
			t.Fatalf("a spoke would refuse its cut: %v", err)
		}
	}
}

func asMap(d Diff) map[[2]string]string {
	out := map[[2]string]string{}
	for _, c := range d.Changes {
		out[[2]string{string(c.Kind), c.Name}] = string(c.Before) + " → " + string(c.After)
	}
	return out
}

func difference(a, b map[[2]string]string) map[[2]string]string {
	out := map[[2]string]string{}
	for id := range a {
		if a[id] != b[id] {
			out[id] = a[id] + " → " + b[id]
		}
	}
	for id := range b {
		if a[id] != b[id] {
			out[id] = a[id] + " → " + b[id]
		}
	}
	return out
}
