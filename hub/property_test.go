package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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

// randomChange is one that may be good or bad.
func randomChange(rnd *rand.Rand) Change {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	name := pick("a", "b", "c", "d")
	kind := Kind(pick("key", "key", "key", "key", "team", "model", "endpoint", "platform", "issuer", "spoke"))
	if kind == KindPlatform {
		name = ""
	}
	if kind == KindKey {
		name = pick("a", "b", "c", "d", "e", "f", "g", "h")
	}
	if rnd.IntN(5) == 0 {
		return drop(kind, name)
	}
	limit := fmt.Sprintf(`"limits": [{"concurrency": %d}]`, 1+rnd.IntN(5))
	switch kind {
	case KindKey:
		return put(kind, name, fmt.Sprintf(`{"team": %q, "sha256": "%064x", "revoked": %v, %s}`, pick("a", "b", "c", "d"), name[0]+byte(rnd.IntN(12)/11), rnd.IntN(4) == 0, limit))
	case KindTeam:
		return put(kind, name, fmt.Sprintf(`{"models": [%q], %s}`, pick("a", "b", "*", "*"), limit))
	case KindModel:
		return put(kind, name, fmt.Sprintf(`{"endpoint": %q, %s}`, pick("a", "b", "c"), limit))
	case KindEndpoint:
		return put(kind, name, fmt.Sprintf(`{"spoke": %q, "allow_fields": [%q]}`, pick("a", "b"), pick("x", "y")))
	case KindIssuer:
		return put(kind, name, fmt.Sprintf(`{"issuer": %q, "audience": "y", "jwks_url": "https://x.example/k", "revoked_subjects": [%q]}`, name, pick("eve", "mal")))
	case KindSpoke:
		return put(kind, name, fmt.Sprintf(`{"labels": {"x": %q}}`, pick("1", "2")))
	}
	return put(kind, name, "{"+limit+"}")
}

// TestRandomCommits makes random commits and rollbacks, through two hubs that share a database, and holds every revision, diff
// and cut against the oracle.
func TestRandomCommits(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		hubs := []*Hub{opened(t, Config{Database: database}), opened(t, Config{Database: database})}
		o := &oracle{revisions: []map[[2]string]string{{}}}
		rnd := rand.New(rand.NewPCG(5, 8))
		counts := map[string]int{}
		for range 150 {
			h := hubs[rnd.IntN(2)]
			if rnd.IntN(12) == 0 && len(o.revisions) > 2 {
				counts[o.rollback(t, h, uint64(1+rnd.IntN(len(o.revisions)-1)), rnd.IntN(2) == 0)]++
			} else {
				counts[o.commit(t, h, rnd)]++
			}
		}
		for _, want := range []string{"committed", "invalid", "unchanged", "not_found", "rollback"} {
			if counts[want] < 2 {
				t.Errorf("the test reaches %q %d times: %v", want, counts[want], counts)
			}
		}
		again := opened(t, Config{Database: database})
		if got, want := again.Cut("a").Digest(), hubs[0].Cut("a"); want != nil {
			eventually(t, func() bool { return hubs[0].Head().Number == again.Head().Number })
			if !bytes.Equal(got, hubs[0].Cut("a").Digest()) {
				t.Error("a hub that starts has another cut than one that followed")
			}
		}
		o.compare(t, again, rnd)
	})
}

func (o *oracle) commit(t *testing.T, h *Hub, rnd *rand.Rand) string {
	t.Helper()
	var c Commit
	c.Actor = admin
	if len(o.revisions) == 1 {
		for _, name := range []string{"a", "b"} {
			c.Changes = append(c.Changes, put(KindSpoke, name, "{}"), put(KindEndpoint, name, `{"spoke": "a"}`), put(KindModel, name, `{"endpoint": "a"}`),
				put(KindTeam, name, `{"models": ["*"]}`))
		}
	} else {
		for range 1 + rnd.IntN(3) {
			c.Changes = append(c.Changes, randomChange(rnd))
		}
	}
	next := maps.Clone(o.now())
	twice, missing := false, false
	seen := map[[2]string]bool{}
	for _, ch := range c.Changes {
		id := [2]string{string(ch.Kind), ch.Name}
		twice = twice || seen[id]
		seen[id] = true
		if ch.Body == nil {
			_, there := o.now()[id]
			missing = missing || !there
			delete(next, id)
			continue
		}
		th, err := readThing(ch.Kind, ch.Name, ch.Body)
		if err != nil {
			t.Fatal(err)
		}
		next[id] = string(th.raw)
	}
	r, err := h.Commit(context.Background(), c)
	what := result(err, outcome{unchanged: err == nil && int(r.Number) < len(o.revisions)})
	switch {
	case what == "error" || what == "conflict":
		t.Fatal(err)
	case what == "not_found" && !missing, what == "committed" && (twice || missing):
		t.Fatalf("%s: %v %v", what, c.Changes, err)
	case what == "unchanged" && !maps.Equal(next, o.now()):
		t.Fatalf("said to change nothing: %v", c.Changes)
	case what == "invalid" && !twice && !missing && o.good(t, next):
		t.Fatalf("refused, and the whole is good: %v", err)
	case what == "committed":
		if !o.good(t, next) {
			t.Fatalf("committed what is no policy: %v", c.Changes)
		}
		o.revisions = append(o.revisions, next)
		o.compare(t, h, rnd)
	}
	return what
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

// rollback to a revision, with or without bringing keys back.
func (o *oracle) rollback(t *testing.T, h *Hub, to uint64, revive bool) string {
	t.Helper()
	r, err := h.Rollback(context.Background(), Commit{Actor: admin}, to, RollbackOptions{Revive: revive})
	next := map[[2]string]string{}
	for id, raw := range o.revisions[to] {
		if Kind(id[0]) != KindSpoke {
			next[id] = raw
		}
	}
	for id, raw := range o.now() {
		if Kind(id[0]) == KindSpoke {
			next[id] = raw
		}
	}
	var bad *Invalid
	if errors.As(err, &bad) { // a spoke is gone, or a key has another hash by now
		return "rollback refused"
	}
	if err != nil {
		t.Fatal(err)
	}
	if int(r.Number) == len(o.revisions)-1 {
		return "rollback of nothing"
	}
	got := stateOf(t, h, r.Number)
	for id, raw := range next {
		switch kind := Kind(id[0]); {
		case got[id] == raw:
		case revive || kind != KindKey && kind != KindIssuer:
			t.Fatalf("rollback to %d: %v is %s, not %s", to, id, got[id], raw)
		case kind == KindKey && !strings.Contains(got[id], `"revoked":true`):
			if is := o.now()[id]; is != got[id] { // it has another hash now, and stays
				t.Fatalf("rollback to %d: %v is %s, not %s revoked", to, id, got[id], raw)
			}
		}
	}
	for id, raw := range got {
		was, there := o.now()[id]
		if _, is := next[id]; !is && Kind(id[0]) != KindKey {
			t.Fatalf("rollback to %d left %v", to, id)
		}
		if Kind(id[0]) == KindKey && !revive && !strings.Contains(raw, `"revoked":true`) && (!there || strings.Contains(was, `"revoked":true`)) {
			t.Fatalf("rollback to %d: %v works again", to, id)
		}
	}
	o.revisions = append(o.revisions, got)
	return "rollback"
}

// stateOf is all that a hub says of a revision.
func stateOf(t *testing.T, h *Hub, n uint64) map[[2]string]string {
	t.Helper()
	d, err := h.Diff(context.Background(), admin, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	out := map[[2]string]string{}
	for _, c := range d.Changes {
		out[[2]string{string(c.Kind), c.Name}] = string(c.After)
	}
	return out
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
