package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/spokegate/spokegate/hub/store"
)

// Rollback makes a revision that restores what was at an earlier one, but for spokes, which are there or not whatever the policy
// says. A rollback undoes a mistake in a policy; it is no pardon: a key that was revoked since stays revoked, one that was deleted
// comes back revoked, an expiry that was brought forward stays, and so do subjects of issuers that were revoked since. Options
// say otherwise. Keys that were made since are gone.
func (h *Hub) Rollback(ctx context.Context, c Commit, to uint64, options RollbackOptions) (Revision, error) {
	if c.Actor.Role != RoleAdmin {
		return Revision{}, &Forbidden{"a rollback wants an admin"}
	}
	op := operation{name: "rollback", content: []any{to, options}, rollbackTo: to}
	op.changes = func(w *work) ([]change, error) {
		if _, err := revisionIn(w.tx, to); err != nil {
			return nil, err
		}
		pairs, err := w.tx.Between(to, w.state.head.Number)
		if err != nil {
			return nil, err
		}
		var list []change
		for _, p := range pairs {
			if bytes.Equal(p.From.Body, p.To.Body) {
				continue
			}
			raw, restores, err := w.restored(p, options)
			if err != nil {
				return nil, err
			}
			if restores {
				list = append(list, change{Change{Kind: Kind(p.To.Kind), Name: p.To.Name, Body: raw}, true})
			}
		}
		return list, nil
	}
	out, err := h.commit(ctx, c, op)
	return out.revision, err
}

// restored is what a thing becomes; restores is false where it stays as it is.
func (w *work) restored(p store.Pair, options RollbackOptions) (raw json.RawMessage, restores bool, err error) {
	kind := Kind(p.To.Kind)
	switch {
	case kind == KindSpoke, kind == KindKey && options.KeepKeys:
		return nil, false, nil
	case p.From.Body == nil || options.Revive || kind != KindKey && kind != KindIssuer:
		return p.From.Body, true, nil
	}
	last, _, err := w.tx.LastBody(p.To.Kind, p.To.Name)
	if err != nil {
		return nil, false, err
	}
	was, err := readBody(p.From.Body)
	if err != nil {
		return nil, false, err
	}
	is, err := readBody(last.Body)
	if err != nil {
		return nil, false, err
	}
	if kind == KindIssuer {
		err = keepRevokedSubjects(was, is)
		return was.raw(), true, err
	}
	return keepRefused(was, is, p.To.Body == nil), is.text("sha256") == was.text("sha256") || p.To.Body == nil, nil
}

// keepRefused is a key as it was, refused where it is refused now.
func keepRefused(was, is body, deleted bool) []byte {
	if deleted || is.yes("revoked") {
		was.set("revoked", true)
	}
	if now, then := is.expires(), was.expires(); !now.IsZero() && (then.IsZero() || now.Before(then)) {
		was["expires"] = is["expires"]
	}
	return was.raw()
}

func keepRevokedSubjects(was, is body) error {
	var then, now []string
	for _, l := range []struct {
		of   body
		into *[]string
	}{{was, &then}, {is, &now}} {
		if raw := l.of["revoked_subjects"]; raw != nil {
			if err := json.Unmarshal(raw, l.into); err != nil {
				return err
			}
		}
	}
	for _, s := range now {
		if !slices.Contains(then, s) {
			then = append(then, s)
		}
	}
	if len(then) > 0 {
		was.set("revoked_subjects", then)
	}
	return nil
}
