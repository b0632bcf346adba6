package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/identity"
)

// Bounds of a commit's words, in characters.
const (
	maxMessage   = 1000
	maxRequestID = 128
	maxIdemKey   = 255
)

// operation is what a commit does. Its name and content are what an idempotency key stands for.
type operation struct {
	name    string
	content any
	// changes makes the changes, upon the state that they will be made to.
	changes func(*work) ([]change, error)
	// rollbackTo is for the revision's record.
	rollbackTo uint64
	// above is what the revision's number must be above; it is made though nothing changes. 0: the next number.
	above uint64
}

// change is a Change; one that is exact is taken as it is, with what the hub has written into it earlier.
type change struct {
	Change
	exact bool
}

// outcome is what came of a commit.
type outcome struct {
	revision  Revision
	repeated  bool   // an idempotency key has answered
	unchanged bool   // everything was so already: no revision was made
	name      string // what the operation says of itself, for its answer: a key's id
	old       string
}

// work is one commit while it is made.
type work struct {
	*outcome
	hub   *Hub
	tx    *store.Tx
	state *state // it is made upon
	by    Commit
	now   time.Time
}

// Commit makes a revision of changes. One that changes nothing makes none, and answers the latest.
func (h *Hub) Commit(ctx context.Context, c Commit) (Revision, error) {
	out, err := h.commit(ctx, c, operation{name: "commit", content: c.Changes, changes: func(*work) ([]change, error) {
		if len(c.Changes) == 0 {
			return nil, invalid("", "a commit wants at least one change")
		}
		list := make([]change, len(c.Changes))
		for i := range c.Changes {
			list[i].Change = c.Changes[i]
		}
		return list, nil
	}})
	return out.revision, err
}

// commit is the one way in which anything changes. What it was that failed is in the error; nothing of it was stored.
func (h *Hub) commit(ctx context.Context, c Commit, op operation) (out outcome, err error) {
	begun := time.Now()
	defer func() {
		kind := result(err, out)
		h.m.commits.WithLabelValues(kind).Inc()
		h.m.seconds.Observe(time.Since(begun).Seconds())
		if kind == "error" && ctx.Err() == nil {
			h.m.databaseErrors.Inc()
		}
	}()
	if err := c.check(); err != nil {
		return out, err
	}
	c.Message, c.RequestID = identity.Mask(c.Message), identity.Mask(c.RequestID)
	if c.IdempotencyKey != "" { // nobody knows what clients put there
		sum := sha256.Sum256([]byte(c.IdempotencyKey))
		c.IdempotencyKey = hex.EncodeToString(sum[:])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var next *state
	err = h.store.Update(ctx, func(tx *store.Tx) error {
		if err := h.catchUp(tx); err != nil {
			return err
		}
		w := &work{outcome: &out, hub: h, tx: tx, state: h.state.Load(), by: c, now: h.cfg.Now().UTC()}
		var err error
		next, err = w.run(op)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	if next != nil {
		h.publish(next)
	}
	return out, nil
}

func (c *Commit) check() error {
	switch {
	case c.Actor.Role != RoleAdmin && c.Actor.Role != RoleTeamOwner:
		return &Forbidden{fmt.Sprintf("the role %q changes nothing", string(c.Actor.Role))}
	case !plainLines(c.Message, maxMessage):
		return invalid("message", "want up to %d printable characters", maxMessage)
	case !plainText(c.RequestID, maxRequestID):
		return invalid("request id", "want up to %d printable characters", maxRequestID)
	case !plainText(c.IdempotencyKey, maxIdemKey):
		return invalid("idempotency key", "want up to %d printable characters", maxIdemKey)
	}
	return nil
}

// plainText says that a text is short, and changes no terminal.
func plainText(s string, most int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// plainLines permits new lines too.
func plainLines(s string, most int) bool { return plainText(strings.ReplaceAll(s, "\n", " "), most) }

// run makes the next state and stores it; nil: nothing is to change.
func (w *work) run(op operation) (*state, error) {
	content, err := json.Marshal([]any{op.name, op.content, w.by.Base})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(content)
	if known, err := w.answered(digest[:]); known || err != nil {
		return nil, err
	}
	if b, is := w.by.Base, w.state.head.Number; b != nil && *b != is {
		return nil, &Conflict{Is: is, Reason: fmt.Sprintf("made upon revision %d, and there is %d by now", *b, is)}
	}
	list, err := op.changes(w)
	if err != nil {
		return nil, err
	}
	planned, err := w.plan(list)
	if err != nil {
		return nil, err
	}
	next := w.state
	if len(planned) == 0 && (op.above == 0 || op.above < w.state.head.Number) {
		w.revision, w.unchanged = w.state.head, true
	} else if next, err = w.take(planned, op); err != nil {
		return nil, err
	}
	return next, w.keepAnswer(digest[:])
}

// take checks the changes as a whole and stores them as a revision.
func (w *work) take(list []planned, op operation) (*state, error) {
	r := Revision{
		Number: max(w.state.head.Number, op.above) + 1, Message: w.by.Message, Actor: w.by.Actor.Name, Role: w.by.Actor.Role, RequestID: w.by.RequestID,
		At: w.now, Changes: len(list), RollbackTo: op.rollbackTo,
	}
	all := make([]changed, len(list))
	for i := range list {
		all[i] = list[i].changed
	}
	next, err := w.state.next(r, all)
	if err != nil {
		return nil, err
	}
	if err := w.whole(next, list); err != nil {
		return nil, err
	}
	w.revision = next.head
	return next, w.store(list)
}

// whole checks the policy that would be.
func (w *work) whole(next *state, list []planned) error {
	if err := w.orphans(list); err != nil {
		return err
	}
	if next.layout != w.state.layout || next.ownSpokes {
		if err := next.checkLayout(); err != nil {
			return err
		}
	}
	return problemsOf(next.compile(w.state, w.now))
}

// orphans tells who would be left behind by what is deleted, where the policy's own message would be one for each of many.
func (w *work) orphans(list []planned) error {
	moved := map[string]int{} // keys that leave a team in this commit
	for _, p := range list {
		if p.kind == KindKey && p.had.Team != "" && (p.new.raw == nil || p.new.body.text("team") != p.had.Team) {
			moved[p.had.Team]++
		}
	}
	for _, p := range list {
		switch {
		case p.new.raw != nil:
		case p.kind == KindTeam:
			n, err := w.tx.CountTeam(p.name)
			if err != nil {
				return err
			}
			if n -= moved[p.name]; n > 0 {
				return invalid(path(p.kind, p.name), "has %d keys; delete them or give them to another team first, or in the same commit", n)
			}
		}
	}
	return nil
}

// store writes a revision and all that belongs to it.
func (w *work) store(list []planned) error {
	r := w.revision
	at := r.At.UnixNano()
	err := w.tx.AddRevision(store.Revision{
		Number: r.Number, Digest: r.Digest, Message: r.Message, Actor: r.Actor, Role: string(r.Role), Request: r.RequestID,
		At: at, Changes: r.Changes, RollbackTo: r.RollbackTo,
	})
	if err != nil {
		return err
	}
	log := make([]store.Audit, len(list))
	for i, p := range list {
		v := store.Version{Kind: string(p.kind), Name: p.name, Since: r.Number, Body: p.new.raw, Created: p.had.Created, Updated: at}
		action := "update"
		if p.had.Body == nil {
			v.Created, action = at, "create"
		}
		if p.new.raw == nil {
			action = "delete"
		} else if p.kind == KindKey {
			v.Team = p.new.body.text("team")
			if v.Encoded, err = proto.Marshal(p.new.message); err != nil {
				return err
			}
		}
		if err := w.tx.Put(v); err != nil {
			return err
		}
		log[i] = store.Audit{
			At: at, Actor: r.Actor, Role: string(r.Role), Request: r.RequestID, Action: action, Kind: v.Kind, Name: v.Name, Revision: r.Number,
		}
	}
	return w.tx.AddAudit(log)
}
