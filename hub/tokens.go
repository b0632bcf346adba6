package hub

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// kindToken is what the audit log calls admin tokens; they are no things of the policy and make no revisions.
const kindToken = "token"

// lastUsedStep is how coarse a token's last use is known.
const lastUsedStep = time.Minute

// CreateToken makes an admin token of a name, a role, and for a team owner teams. The secret is in this answer and nowhere else.
func (h *Hub) CreateToken(ctx context.Context, c Commit, t Token) (Token, string, error) {
	secret, hash := identity.NewKey()
	err := h.tokens(ctx, c, func(tx *store.Tx) ([]store.Audit, error) {
		t.Created, t.Revoked, t.LastUsed = h.cfg.Now().UTC(), time.Time{}, time.Time{}
		row, entry, err := newToken(tx, t, hash)
		if err != nil {
			return nil, err
		}
		return entry, tx.AddToken(row)
	})
	if err != nil {
		return Token{}, "", err
	}
	return t, secret, nil
}

// tokens runs a change of admin tokens, which only admins make, and puts it into the audit log.
func (h *Hub) tokens(ctx context.Context, c Commit, f func(*store.Tx) ([]store.Audit, error)) error {
	if err := c.check(); err != nil {
		return err
	}
	c.RequestID = identity.Mask(c.RequestID)
	if c.Actor.Role != RoleAdmin {
		return &Forbidden{"admin tokens want an admin"}
	}
	return h.store.Update(ctx, func(tx *store.Tx) error {
		log, err := f(tx)
		if err != nil {
			return err
		}
		for i := range log {
			log[i].At, log[i].Actor, log[i].Role, log[i].Request = h.cfg.Now().UnixNano(), c.Actor.Name, string(c.Actor.Role), c.RequestID
		}
		return tx.AddAudit(log)
	})
}

// newToken checks a token that is to be; its row, and its entry in the audit log.
func newToken(tx *store.Tx, t Token, hash identity.Hash) (row store.Token, log []store.Audit, err error) {
	at := "tokens[" + t.Name + "]"
	if bad := policy.BadID(t.Name); bad != "" {
		return row, nil, invalid("tokens.name", "%s", bad)
	}
	if identity.Mask(t.Name) != t.Name {
		return row, nil, invalid("tokens.name", "this is a key itself; want a name")
	}
	if _, taken, err := tx.Token(t.Name); taken || err != nil {
		return row, nil, errors.Join(err, &Conflict{Kind: kindToken, Name: t.Name, Reason: at + " is there already; names are not used again, also of tokens that were revoked"})
	}
	switch {
	case !slices.Contains([]Role{RoleAdmin, RoleTeamOwner, RoleAuditor}, t.Role):
		return row, nil, invalid(at+".role", "want admin, team-owner or auditor")
	case t.Role == RoleTeamOwner && len(t.Teams) == 0:
		return row, nil, invalid(at+".teams", "want at least one team")
	case t.Role != RoleTeamOwner && len(t.Teams) > 0:
		return row, nil, invalid(at+".teams", "only a team owner has teams")
	case !t.Expires.IsZero() && !t.Expires.After(t.Created):
		return row, nil, invalid(at+".expires", "want a time to come")
	}
	for i, team := range t.Teams {
		if policy.BadID(team) != "" {
			return row, nil, invalid(fmt.Sprintf("%s.teams[%d]", at, i), "there is no team %.70q", team)
		}
		if _, ok, err := tx.Current(string(KindTeam), team); err != nil || !ok {
			return row, nil, errors.Join(err, invalid(fmt.Sprintf("%s.teams[%d]", at, i), "there is no team %.70q", team))
		}
	}
	teams, err := json.Marshal(t.Teams)
	if err != nil {
		return row, nil, err
	}
	row = store.Token{
		Name: t.Name, Hash: hash[:], Role: string(t.Role), Teams: string(teams), Created: t.Created.UnixNano(), Expires: nanos(t.Expires),
	}
	b := body{}
	b.set("name", t.Name)
	b.set("role", t.Role)
	if len(t.Teams) > 0 {
		b.set("teams", t.Teams)
	}
	if !t.Expires.IsZero() {
		b.set("expires", stamp(t.Expires))
	}
	return row, []store.Audit{{Action: "create", Kind: kindToken, Name: t.Name, After: b.raw()}}, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeAt(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

func tokenOf(r store.Token) (t Token, err error) {
	t = Token{
		Name: r.Name, Role: Role(r.Role), Created: timeAt(r.Created), Expires: timeAt(r.Expires), Revoked: timeAt(r.Revoked), LastUsed: timeAt(r.Used),
	}
	return t, json.Unmarshal([]byte(r.Teams), &t.Teams)
}

// ListTokens gives all admin tokens, revoked ones too, in order of name.
func (h *Hub) ListTokens(ctx context.Context, who Actor) (list []Token, err error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	err = h.store.View(ctx, func(tx *store.Tx) error {
		rows, err := tx.Tokens()
		for _, r := range rows {
			t, e := tokenOf(r)
			list, err = append(list, t), errors.Join(err, e)
		}
		return err
	})
	return list, err
}

// RevokeToken revokes an admin token for good. One that is revoked stays so.
func (h *Hub) RevokeToken(ctx context.Context, c Commit, name string) error {
	return h.tokens(ctx, c, func(tx *store.Tx) ([]store.Audit, error) {
		if policy.BadID(name) != "" {
			return nil, fmt.Errorf("token %.70q: %w", name, ErrNotFound)
		}
		had, ok, err := tx.Token(name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("token %.70q: %w", name, ErrNotFound)
		}
		if had.Revoked > 0 {
			return nil, nil
		}
		return []store.Audit{{Action: "revoke", Kind: kindToken, Name: name}}, tx.RevokeToken(name, h.cfg.Now().UnixNano())
	})
}

// Authenticate says who an admin token's secret stands for; ok is false where it stands for nobody. It looks into the database
// each time, so a token that was revoked by whichever hub is refused at once; an error says that the database does not answer,
// and then nobody is let in.
func (h *Hub) Authenticate(ctx context.Context, secret string) (who Actor, ok bool, err error) {
	hash, ok := identity.ParseKey(secret)
	if !ok {
		return who, false, nil
	}
	var row store.Token
	err = h.store.View(ctx, func(tx *store.Tx) (err error) {
		row, ok, err = tx.TokenByHash(hash[:])
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			h.m.databaseErrors.Inc()
		}
		return who, false, err
	}
	// The index was asked by a hash, of which a caller controls no chosen part; it is compared once more in constant time.
	if !ok || subtle.ConstantTimeCompare(row.Hash, hash[:]) != 1 {
		return who, false, nil
	}
	t, err := tokenOf(row)
	now := h.cfg.Now()
	if err != nil || !t.Revoked.IsZero() || !t.Expires.IsZero() && !now.Before(t.Expires) {
		return who, false, err
	}
	if now.Sub(t.LastUsed) >= lastUsedStep {
		h.used(ctx, t.Name, now)
	}
	return Actor{Name: t.Name, Role: t.Role, Teams: t.Teams}, true, nil
}

// used takes note of a token's use, where nobody is committing: it is worth no wait.
func (h *Hub) used(ctx context.Context, name string, now time.Time) {
	if !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	err := h.store.Update(ctx, func(tx *store.Tx) error { return tx.UseToken(name, now.UnixNano()) })
	if err != nil && ctx.Err() == nil {
		h.m.databaseErrors.Inc()
	}
}

// Bootstrap makes the first admin token, where there has never been one, and writes its secret into a file that only its owner
// reads. It says whether it did.
func (h *Hub) Bootstrap(ctx context.Context, file string) (made bool, err error) {
	err = h.store.Update(ctx, func(tx *store.Tx) error {
		had, err := tx.Tokens()
		if err != nil || len(had) > 0 {
			return err
		}
		secret, hash := identity.NewKey()
		row, log, err := newToken(tx, Token{Name: "first", Role: RoleAdmin, Created: h.cfg.Now().UTC()}, hash)
		if err != nil {
			return err
		}
		log[0].At, log[0].Actor, log[0].Role = h.cfg.Now().UnixNano(), "hub", string(RoleAdmin)
		if err := errors.Join(tx.AddToken(row), tx.AddAudit(log)); err != nil {
			return err
		}
		made = true
		// The file comes before the commit: a token whose secret nobody has would be in the way of another.
		return writeSecret(file, secret)
	})
	return made && err == nil, err
}

// writeSecret puts a file in the place of whatever was there.
func writeSecret(name, secret string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".token") // 0600
	if err != nil {
		return fmt.Errorf("the first admin token: %w", err)
	}
	_, err = f.WriteString(secret + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the first admin token: %w", err), os.Remove(f.Name()))
	}
	dir, err := os.Open(filepath.Dir(name)) // that the file has its name must survive a loss of power, as the token does
	if err != nil {
		return fmt.Errorf("the first admin token: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
