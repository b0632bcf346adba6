package hub

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// MaxOverlap bounds for how long a key that was rotated goes on working.
const MaxOverlap = 90 * 24 * time.Hour

// body is the key's body, with a hash.
func (s KeySpec) body(hash string) (body, error) {
	b := body{}
	b.set("id", s.ID)
	b.set("team", s.Team)
	b.set("sha256", hash)
	if len(s.Models) > 0 {
		b.set("models", s.Models)
	}
	if len(s.Networks) > 0 {
		b.set("networks", s.Networks)
	}
	if len(s.Labels) > 0 {
		b.set("labels", s.Labels)
	}
	if !s.Expires.IsZero() {
		b.set("expires", stamp(s.Expires))
	}
	if s.Limits != nil {
		var limits []any
		if err := strictly(s.Limits, &limits); err != nil {
			return nil, invalid(path(KindKey, s.ID)+".limits", "want a list of limits")
		}
		b["limits"] = s.Limits
	}
	return b, nil
}

// stamp is a time as bodies have it: whole seconds, cut off, so that nothing lives longer than was asked for.
func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }

// CreateKey makes a key, and its secret unless the hash of one is given. The secret is in this answer and nowhere else: where an
// idempotency key answers again, it is not.
func (h *Hub) CreateKey(ctx context.Context, c Commit, spec KeySpec) (KeyMade, error) {
	secret, hash := "", spec.SHA256
	if hash == "" {
		made, sum := identity.NewKey()
		secret, hash = made, sum.String()
	}
	if _, is := identity.ParseKey(spec.SHA256); is {
		return KeyMade{}, invalid(path(KindKey, spec.ID)+".sha256", "this is a key itself, not its hash: others may have seen it; make another")
	}
	out, err := h.commit(ctx, c, operation{name: "create key", content: spec, changes: func(w *work) ([]change, error) {
		b, err := spec.body(hash)
		w.name = spec.ID
		return []change{{Change: Change{Kind: KindKey, Name: spec.ID, Body: b.raw(), IfRevision: new(uint64)}}}, err
	}})
	return h.made(ctx, out, secret, err)
}

// made tells of a key as the revision made it.
func (h *Hub) made(ctx context.Context, out outcome, secret string, err error) (KeyMade, error) {
	if err != nil {
		return KeyMade{}, err
	}
	m := KeyMade{Revision: out.revision}
	if !out.repeated {
		m.Secret = secret
	}
	hub := Actor{Role: RoleAdmin}
	if m.Object, err = h.GetAt(ctx, hub, KindKey, out.name, out.revision.Number); err != nil || out.old == "" {
		return m, err
	}
	old, err := h.GetAt(ctx, hub, KindKey, out.old, out.revision.Number)
	m.Old = &old
	return m, err
}

// RotateKey makes a key with a new id and all that the old one has; newID "" is the old id with .2, .3 and so on behind it. The
// old one works until the overlap is over, or its own expiry where that is sooner. Where the old one was to expire, the new one
// lives as long from now as the old one was to live when it was made.
func (h *Hub) RotateKey(ctx context.Context, c Commit, id, newID string, overlap time.Duration) (KeyMade, error) {
	secret, hash := identity.NewKey()
	content := []any{id, newID, overlap}
	out, err := h.commit(ctx, c, operation{name: "rotate key", content: content, changes: func(w *work) ([]change, error) {
		return w.rotate(id, newID, hash.String(), overlap)
	}})
	return h.made(ctx, out, secret, err)
}

func (w *work) rotate(id, newID, hash string, overlap time.Duration) ([]change, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return nil, invalid("overlap", "want a time from 0 to %d days", MaxOverlap/(24*time.Hour))
	}
	had, was, err := w.keyBody(id)
	if err != nil {
		return nil, err
	}
	expires := was.expires()
	switch {
	case was.yes("revoked"):
		return nil, invalid(path(KindKey, id), "is revoked, and what is rotated goes on: make another key")
	case !expires.IsZero() && !w.now.Before(expires):
		return nil, invalid(path(KindKey, id), "has expired, and what is rotated goes on: make another key")
	}
	if newID == "" {
		if newID, err = w.freeID(id); err != nil {
			return nil, err
		}
	}
	fresh, old := was.without(nil), was.without(nil)
	fresh.set("id", newID)
	fresh.set("sha256", hash)
	if !expires.IsZero() {
		fresh.set("expires", stamp(w.now.Add(expires.Sub(time.Unix(0, had.created)))))
	}
	if until := w.now.Add(overlap); expires.IsZero() || until.Before(expires) {
		old.set("expires", stamp(until))
	}
	w.name, w.old = newID, id
	return []change{
		{Change: Change{Kind: KindKey, Name: id, Body: old.raw(), IfRevision: &had.since}},
		// Exact: what an admin gave to the old one, the new one has whoever rotates.
		{Change: Change{Kind: KindKey, Name: newID, Body: fresh.raw(), IfRevision: new(uint64)}, exact: true},
	}, nil
}

type keyVersion struct {
	since   uint64
	created int64
}

// keyBody is a key as it is. To a team owner, others' keys are not there; what may be changed is judged where the change is.
func (w *work) keyBody(id string) (v keyVersion, b body, err error) {
	if err := plainName(KindKey, id); err != nil {
		return v, nil, err
	}
	had, ok, err := w.tx.Current(string(KindKey), id)
	if err != nil {
		return v, nil, err
	}
	if !ok {
		had.Body = nil
	}
	if err := w.mayChange(change{Change: Change{Kind: KindKey, Name: id}}, had); err != nil {
		return v, nil, err
	}
	if !ok {
		return v, nil, fmt.Errorf("%s: %w", path(KindKey, id), ErrNotFound)
	}
	b, err = readBody(had.Body)
	return keyVersion{had.Since, had.Created}, b, err
}

// freeID is an id for the successor of a key, which no key has ever had.
func (w *work) freeID(id string) (string, error) {
	base, n := id, 2
	if i := strings.LastIndexByte(id, '.'); i > 0 {
		if had, err := strconv.Atoi(id[i+1:]); err == nil && had >= 2 && had < 1e6 {
			base, n = id[:i], had+1
		}
	}
	for ; ; n++ {
		next := base + "." + strconv.Itoa(n)
		_, taken, err := w.tx.LastBody(string(KindKey), next)
		if !taken || err != nil {
			return next, err
		}
	}
}

// RevokeKey revokes a key: every spoke refuses it from then on. One that is revoked already makes no revision.
func (h *Hub) RevokeKey(ctx context.Context, c Commit, id string) (Object, Revision, error) {
	out, err := h.commit(ctx, c, operation{name: "revoke key", content: id, changes: func(w *work) ([]change, error) {
		had, b, err := w.keyBody(id)
		if err != nil {
			return nil, err
		}
		b.set("revoked", true)
		w.name = id
		return []change{{Change: Change{Kind: KindKey, Name: id, Body: b.raw(), IfRevision: &had.since}}}, nil
	}})
	m, err := h.made(ctx, out, "", err)
	return m.Object, m.Revision, err
}
