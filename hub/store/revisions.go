package store

import "github.com/spokegate/spokegate/sqldb"

// Revision is a row of the revisions.
type Revision struct {
	Number                                uint64
	Digest, Message, Actor, Role, Request string
	At                                    int64
	Changes                               int
	RollbackTo                            uint64
}

const revisionColumns = `number, digest, message, actor, role, request, at, changes, rollback_to`

func scanRevision(scan func(...any) error) (r Revision, err error) {
	err = scan(&r.Number, &r.Digest, &r.Message, &r.Actor, &r.Role, &r.Request, &r.At, &r.Changes, &r.RollbackTo)
	return r, err
}

// Head is the latest revision; Number 0: there is none.
func (t *Tx) Head() (r Revision, err error) {
	r, err = scanRevision(t.Row(`SELECT ` + revisionColumns + ` FROM revisions ORDER BY number DESC LIMIT 1`).Scan)
	_, err = sqldb.Found(err)
	return r, err
}

// Revision is one by its number.
func (t *Tx) Revision(number uint64) (r Revision, ok bool, err error) {
	r, err = scanRevision(t.Row(`SELECT `+revisionColumns+` FROM revisions WHERE number = ?`, number).Scan)
	ok, err = sqldb.Found(err)
	return r, ok, err
}

// Revisions gives up to limit below a number, the newest first.
func (t *Tx) Revisions(before uint64, limit int) (list []Revision, err error) {
	err = t.Tx.Each(func(scan func(...any) error) error {
		r, err := scanRevision(scan)
		list = append(list, r)
		return err
	}, `SELECT `+revisionColumns+` FROM revisions WHERE number < ? ORDER BY number DESC LIMIT ?`, before, limit)
	return list, err
}

// AddRevision adds a revision; that its number is the next is the caller's part, and that no number is there twice the table's.
func (t *Tx) AddRevision(r Revision) error {
	return t.Exec(`INSERT INTO revisions (`+revisionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Number, r.Digest, r.Message, r.Actor, r.Role, r.Request, r.At, r.Changes, r.RollbackTo)
}

// Audit is a row of the audit log. Of a change that made a revision the bodies are those of the thing's versions.
type Audit struct {
	Number                                   uint64
	At                                       int64
	Actor, Role, Request, Action, Kind, Name string
	Revision                                 uint64 // 0: none
	Before, After                            []byte // nil: not there
}

// AuditQuery chooses rows; zero values choose all.
type AuditQuery struct {
	Before            uint64 // numbers below
	Limit             int
	Kind, Name, Actor string
}

// AddAudit adds rows, in order. Bodies are stored only where there is no revision to read them from.
func (t *Tx) AddAudit(rows []Audit) error {
	var last uint64
	if err := t.Row(`SELECT coalesce(max(number), 0) FROM audit`).Scan(&last); err != nil {
		return err
	}
	for _, a := range rows {
		last++
		if a.Revision > 0 {
			a.Before, a.After = nil, nil
		}
		err := t.Again(`INSERT INTO audit (number, at, actor, role, request, action, kind, name, revision, before, after)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, last, a.At, a.Actor, a.Role, a.Request, a.Action, a.Kind, a.Name, a.Revision, orNull(a.Before), orNull(a.After))
		if err != nil {
			return err
		}
	}
	return nil
}

// Audit gives rows, the newest first.
func (t *Tx) Audit(q AuditQuery) (list []Audit, err error) {
	query := `SELECT l.number, l.at, l.actor, l.role, l.request, l.action, l.kind, l.name, l.revision,
		CASE WHEN l.revision = 0 THEN l.before ELSE b.body END, CASE WHEN l.revision = 0 THEN l.after ELSE a.body END
		FROM audit l LEFT JOIN versions a ON l.revision > 0 AND a.kind = l.kind AND a.name = l.name AND a.since = l.revision
		LEFT JOIN versions b ON l.revision > 0 AND b.kind = l.kind AND b.name = l.name AND b.until = l.revision WHERE l.number < ?`
	args := []any{q.Before}
	for _, c := range []struct{ column, value string }{{"kind", q.Kind}, {"name", q.Name}, {"actor", q.Actor}} {
		if c.value != "" {
			query += ` AND l.` + c.column + ` = ?`
			args = append(args, c.value)
		}
	}
	err = t.Tx.Each(func(scan func(...any) error) error {
		var a Audit
		err := scan(&a.Number, &a.At, &a.Actor, &a.Role, &a.Request, &a.Action, &a.Kind, &a.Name, &a.Revision, &a.Before, &a.After)
		list = append(list, a)
		return err
	}, query+` ORDER BY l.number DESC LIMIT ?`, append(args, q.Limit)...)
	return list, err
}

// Answer is what an idempotency key was answered.
type Answer struct {
	Content []byte // a digest of what was asked
	Answer  []byte
	At      int64
}

// Answer is the one under a key, of an actor.
func (t *Tx) Answer(actor, key string) (a Answer, ok bool, err error) {
	err = t.Row(`SELECT content, answer, at FROM answers WHERE actor = ? AND idempotency = ?`, actor, key).Scan(&a.Content, &a.Answer, &a.At)
	ok, err = sqldb.Found(err)
	return a, ok, err
}

// AddAnswer keeps an answer, and forgets those from before a time.
func (t *Tx) AddAnswer(actor, key string, a Answer, forget int64) error {
	if err := t.Exec(`DELETE FROM answers WHERE at < ?`, forget); err != nil {
		return err
	}
	return t.Exec(`INSERT INTO answers (actor, idempotency, content, answer, at) VALUES (?, ?, ?, ?, ?)`, actor, key, a.Content, a.Answer, a.At)
}
