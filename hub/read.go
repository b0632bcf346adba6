package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spokegate/spokegate/hub/store"
)

// seesAll: admins and auditors do.
func (a Actor) seesAll() error {
	if a.Role == RoleAdmin || a.Role == RoleAuditor {
		return nil
	}
	return &Forbidden{fmt.Sprintf("the role %q does not see this", string(a.Role))}
}

// sees says whether the actor may see things of a kind; where only those of some teams, these.
func (a Actor) sees(kind Kind) (teams []string, err error) {
	switch {
	case a.Role == RoleTeamOwner && (kind == KindKey || kind == KindTeam):
		if len(a.Teams) == 0 {
			return nil, &Forbidden{"this team owner has no team"}
		}
		return a.Teams, nil
	case a.Role == RoleTeamOwner && kind == KindModel:
		return nil, nil
	}
	return nil, a.seesAll()
}

// Get is a thing as it is.
func (h *Hub) Get(ctx context.Context, who Actor, kind Kind, name string) (Object, error) {
	return h.GetAt(ctx, who, kind, name, math.MaxInt64)
}

// GetAt is a thing as it was at a revision.
func (h *Hub) GetAt(ctx context.Context, who Actor, kind Kind, name string, revision uint64) (o Object, err error) {
	if err := plainName(kind, name); err != nil {
		return o, err
	}
	teams, err := who.sees(kind)
	if err != nil {
		return o, err
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		v, ok, err := tx.At(string(kind), name, min(revision, math.MaxInt64))
		if err != nil {
			return err
		}
		if of := v.Team; ok && teams != nil {
			if kind == KindTeam {
				of = name
			}
			ok = slices.Contains(teams, of)
		}
		if !ok {
			return fmt.Errorf("%s: %w", path(kind, name), ErrNotFound)
		}
		o = objectOf(v)
		return nil
	})
	return o, err
}

// pageOf is a limit within its bounds.
func pageOf(limit int) (int, error) {
	switch {
	case limit == 0:
		return 100, nil
	case limit < 0 || limit > MaxPage:
		return 0, invalid("limit", "want a number from 1 to %d", MaxPage)
	}
	return limit, nil
}

// List gives a page, and whether there is more behind it.
func (h *Hub) List(ctx context.Context, who Actor, kind Kind, page Page) (list []Object, more bool, err error) {
	if !slices.Contains(Kinds, kind) {
		return nil, false, invalid("", "there is no kind %q of things; there are %v", string(kind), Kinds)
	}
	limit, err := pageOf(page.Limit)
	if err != nil {
		return nil, false, err
	}
	if !plainText(page.After+page.Team, 1000) {
		return nil, false, invalid("after", "want names")
	}
	teams, err := who.sees(kind)
	if err != nil {
		return nil, false, err
	}
	if page.Team != "" && kind == KindKey {
		if teams != nil && !slices.Contains(teams, page.Team) {
			return nil, false, &Forbidden{fmt.Sprintf("team %s is not yours", page.Team)}
		}
		teams = []string{page.Team}
	}
	switch {
	case kind == KindTeam && teams != nil:
		list, err = h.some(ctx, who, kind, page.After, teams)
		return list, false, err
	case kind == KindPlatform:
		list, err = h.some(ctx, who, kind, page.After, []string{""})
		return list, false, err
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		versions, err := tx.List(string(kind), page.After, limit+1, teams)
		for _, v := range versions {
			list = append(list, objectOf(v))
		}
		return err
	})
	if len(list) > limit {
		list, more = list[:limit], true
	}
	return list, more, err
}

// some are those of a few names that are there.
func (h *Hub) some(ctx context.Context, who Actor, kind Kind, after string, names []string) (list []Object, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if after != "" && name <= after {
			continue
		}
		o, err := h.Get(ctx, who, kind, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if err == nil {
			list = append(list, o)
		}
	}
	return list, nil
}

// Revisions gives those below a number, the newest first; 0: from the latest.
func (h *Hub) Revisions(ctx context.Context, who Actor, before uint64, limit int) (list []Revision, err error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	if limit, err = pageOf(limit); err != nil {
		return nil, err
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Revisions(below(before), limit)
		for _, r := range rows {
			list = append(list, revisionOf(r))
		}
		return err
	})
	return list, err
}

// below turns 0 into the greatest number that a database has.
func below(n uint64) uint64 {
	if n == 0 || n > math.MaxInt64 {
		return math.MaxInt64
	}
	return n
}

// Revision is one by its number.
func (h *Hub) Revision(ctx context.Context, who Actor, number uint64) (r Revision, err error) {
	if err := who.seesAll(); err != nil {
		return r, err
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		r, err = revisionIn(tx, number)
		return err
	})
	return r, err
}

func revisionIn(tx *store.Tx, number uint64) (Revision, error) {
	r, ok, err := tx.Revision(min(number, math.MaxInt64))
	if err == nil && !ok {
		err = fmt.Errorf("revision %d: %w", number, ErrNotFound)
	}
	return revisionOf(r), err
}

// Diff is what lies between two revisions, in either direction; 0 is the state before the first.
func (h *Hub) Diff(ctx context.Context, who Actor, from, to uint64) (Diff, error) {
	d := Diff{From: from, To: to}
	if err := who.seesAll(); err != nil {
		return d, err
	}
	err := h.store.View(ctx, func(tx *store.Tx) error {
		head, err := tx.Head()
		if n := max(from, to); err == nil && n > head.Number { // one that was never given is as the one before it: see ContinueAbove
			err = fmt.Errorf("revision %d: %w", n, ErrNotFound)
		}
		if err != nil {
			return err
		}
		pairs, err := tx.Between(min(from, to), max(from, to))
		for _, p := range pairs {
			if bytes.Equal(p.From.Body, p.To.Body) {
				continue
			}
			if from > to {
				p.From.Body, p.To.Body = p.To.Body, p.From.Body
			}
			d.Changes = append(d.Changes, Difference{Kind(p.To.Kind), p.To.Name, json.RawMessage(p.From.Body), json.RawMessage(p.To.Body)})
		}
		return err
	})
	slices.SortStableFunc(d.Changes, func(a, b Difference) int { return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind) })
	return d, err
}

// Audit gives entries of the audit log, the newest first.
func (h *Hub) Audit(ctx context.Context, who Actor, q AuditQuery) (list []AuditEntry, err error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	if q.Limit, err = pageOf(q.Limit); err != nil {
		return nil, err
	}
	if !plainText(string(q.Kind)+q.Name+q.Actor, 1000) {
		return nil, invalid("", "want names")
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Audit(store.AuditQuery{Before: below(q.Before), Limit: q.Limit, Kind: string(q.Kind), Name: q.Name, Actor: q.Actor})
		for _, r := range rows {
			list = append(list, AuditEntry{
				Number: r.Number, At: time.Unix(0, r.At).UTC(), Actor: r.Actor, Role: Role(r.Role), RequestID: r.Request,
				Action: r.Action, Kind: Kind(r.Kind), Name: r.Name, Revision: r.Revision, Before: json.RawMessage(r.Before), After: json.RawMessage(r.After),
			})
		}
		return err
	})
	return list, err
}
