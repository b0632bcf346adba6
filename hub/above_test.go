package hub

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spokegate/spokegate/hub/store"
)

// wentBack is a database as a copy of it from a revision would be.
func wentBack(t *testing.T, h *Hub, to uint64) {
	t.Helper()
	err := h.store.Update(context.Background(), func(tx *store.Tx) error {
		return errors.Join(
			tx.Exec(`DELETE FROM versions WHERE since > ?`, to), tx.Exec(`DELETE FROM revisions WHERE number > ?`, to),
			tx.Exec(`DELETE FROM audit WHERE revision > ?`, to), tx.Exec(`UPDATE versions SET until = ? WHERE until > ?`, int64(1<<63-1), to))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func issuer(name, audience string) Change {
	return put(KindIssuer, name, fmt.Sprintf(`{"issuer": %q, "audience": %q, "jwks_url": "https://id.example.com/k"}`, name, audience))
}

// TestDatabaseWentBack under a hub that runs: what it pushes, and commits upon, is what the database has, and no mixture.
func TestDatabaseWentBack(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		for name, since := range map[string]func(h *Hub){
			"behind": func(*Hub) {},
			"as far": func(h *Hub) { must(t, h, put(KindSpoke, "c", "{}")); must(t, h, put(KindSpoke, "d", "{}")) },
			"further now": func(h *Hub) {
				must(t, h, put(KindSpoke, "x", "{}"))
				must(t, h, put(KindSpoke, "y", "{}"))
				must(t, h, put(KindSpoke, "z", "{}"))
			},
		} {
			t.Run(name, func(t *testing.T) {
				h := opened(t, Config{Database: database})
				base := h.Head().Number
				tag := fmt.Sprint("t", base)
				must(t, h, issuer(tag, "a"))
				to := h.Head().Number
				must(t, h, issuer(tag, "b"))
				must(t, h, issuer(tag+"lost", "a"))
				wentBack(t, h, to)
				since(opened(t, Config{Database: database}))
				must(t, h, issuer(tag+"next", "a"))
				fresh := opened(t, Config{Database: database})
				if h.Head().Number != fresh.Head().Number || h.Head().Digest != fresh.Head().Digest {
					t.Errorf("the hub has %d %s, and the database %d %s", h.Head().Number, h.Head().Digest, fresh.Head().Number, fresh.Head().Digest)
				}
				if h.Snapshot().Revision() != h.Head().Number {
					t.Errorf("revision %d is pushed as %d", h.Head().Number, h.Snapshot().Revision())
				}
			})
		}
	})
}

// TestContinueAbove: a restored hub goes on above what doors hold; another hub follows, and all that reads revisions can.
func TestContinueAbove(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		ctx := context.Background()
		h := opened(t, Config{Database: database})
		other := opened(t, Config{Database: database})
		must(t, h, put(KindSpoke, "a", "{}"))
		must(t, h, issuer("t", "a"))
		for range 2 {
			r, err := h.ContinueAbove(ctx, admin, 40)
			if err != nil || r.Number != 41 || r.Changes != 0 || r.Message != "numbers continue above 40" {
				t.Fatal(r, err)
			}
		}
		if r, err := h.ContinueAbove(ctx, admin, 41); err != nil || r.Number != 42 {
			t.Error(r, err)
		}
		if n := h.Cut("a").Revision().GetNumber(); n != 42 {
			t.Errorf("the cut is of revision %d", n)
		}
		must(t, h, issuer("u", "a"))
		eventually(t, func() bool { return other.Head().Number == 43 })
		if d, err := h.Diff(ctx, admin, 2, 43); err != nil || len(d.Changes) != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := h.Diff(ctx, admin, 40, 41); err != nil || len(d.Changes) != 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if r, err := h.Rollback(ctx, Commit{Actor: admin}, 2, RollbackOptions{}); err != nil || r.Number != 44 {
			t.Error(r, err)
		}
		if list, err := h.Revisions(ctx, admin, 0, 0); err != nil || len(list) != 6 {
			t.Errorf("%+v, %v", list, err)
		}
		var forbidden *Forbidden
		var bad *Invalid
		if _, err := h.ContinueAbove(ctx, Actor{Name: "x", Role: RoleTeamOwner}, 50); !errors.As(err, &forbidden) {
			t.Error(err)
		}
		for _, n := range []uint64{0, maxAbove + 1} {
			if _, err := h.ContinueAbove(ctx, admin, n); !errors.As(err, &bad) {
				t.Error(n, err)
			}
		}
	})
}
