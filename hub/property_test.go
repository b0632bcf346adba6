package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
)

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
		for range 125 {
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
