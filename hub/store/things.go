package store

import (
	"math"
	"strings"

	"github.com/spokegate/spokegate/sqldb"
)

// forever is the end of a version that has none.
const forever = math.MaxInt64

// Version is a thing as it was, or is, from a revision on.
type Version struct {
	Kind, Name string
	Since      uint64 // the revision that made it
	Team       string // of a key; else ""
	Body       []byte // nil: it is not there
	Encoded    []byte // of a key, what the policy has of it; else nil
	Created    int64  // when the thing was made
	Updated    int64  // when this version was
}

const versionColumns = `kind, name, since, team, body, encoded, created, updated`

func scanVersion(scan func(...any) error) (v Version, err error) {
	err = scan(&v.Kind, &v.Name, &v.Since, &v.Team, &v.Body, &v.Encoded, &v.Created, &v.Updated)
	return v, err
}

// Current is a thing as it is; ok is false where it is not there.
func (t *Tx) Current(kind, name string) (v Version, ok bool, err error) {
	row, err := t.RowAgain(`SELECT `+versionColumns+` FROM versions WHERE kind = ? AND name = ? ORDER BY since DESC LIMIT 1`, kind, name)
	if err != nil {
		return v, false, err
	}
	v, err = scanVersion(row.Scan)
	ok, err = sqldb.Found(err)
	return v, ok && v.Body != nil, err
}

// At is a thing as it was at a revision.
func (t *Tx) At(kind, name string, revision uint64) (v Version, ok bool, err error) {
	v, err = scanVersion(t.Row(`SELECT `+versionColumns+` FROM versions WHERE kind = ? AND name = ? AND since <= ? ORDER BY since DESC LIMIT 1`,
		kind, name, revision).Scan)
	ok, err = sqldb.Found(err)
	return v, ok && v.Body != nil, err
}

// LastBody is what a thing was when it was there last.
func (t *Tx) LastBody(kind, name string) (v Version, ok bool, err error) {
	row, err := t.RowAgain(`SELECT `+versionColumns+` FROM versions WHERE kind = ? AND name = ? AND body IS NOT NULL ORDER BY since DESC LIMIT 1`, kind, name)
	if err != nil {
		return v, false, err
	}
	v, err = scanVersion(row.Scan)
	ok, err = sqldb.Found(err)
	return v, ok, err
}

// Put adds the version of a thing that its revision makes. The caller has numbered it.
func (t *Tx) Put(v Version) error {
	err := t.Again(`UPDATE versions SET until = ? WHERE kind = ? AND name = ? AND until = ?`, v.Since, v.Kind, v.Name, int64(forever))
	if err != nil {
		return err
	}
	return t.Again(`INSERT INTO versions (`+versionColumns+`, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		v.Kind, v.Name, v.Since, v.Team, orNull(v.Body), orNull(v.Encoded), v.Created, v.Updated, int64(forever))
}

// orNull: to a database, bytes that are not there are not the same as none.
func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// List gives up to limit things of a kind as they are, behind a name, in order of name. Teams, where there are any, are those
// that keys are listed of.
func (t *Tx) List(kind, after string, limit int, teams []string) (list []Version, err error) {
	query := `SELECT ` + versionColumns + ` FROM versions WHERE kind = ? AND name > ? AND until = 9223372036854775807 AND body IS NOT NULL`
	args := []any{kind, after}
	if len(teams) > 0 {
		query += ` AND team <> '' AND team IN (` + strings.TrimSuffix(strings.Repeat("?, ", len(teams)), ", ") + `)`
		for _, team := range teams {
			args = append(args, team)
		}
	}
	err = t.Tx.Each(func(scan func(...any) error) error {
		v, err := scanVersion(scan)
		list = append(list, v)
		return err
	}, query+` ORDER BY name LIMIT ?`, append(args, limit)...)
	return list, err
}

// Each calls f with every thing of a kind as it was at a revision, in no order.
func (t *Tx) Each(kind string, revision uint64, f func(Version) error) error {
	return t.Tx.Each(func(scan func(...any) error) error {
		v, err := scanVersion(scan)
		if err != nil {
			return err
		}
		return f(v)
	}, `SELECT `+versionColumns+` FROM versions WHERE kind = ? AND since <= ? AND until > ? AND body IS NOT NULL`, kind, revision, revision)
}

// CountTeam is how many keys of a team there are.
func (t *Tx) CountTeam(team string) (n int, err error) {
	err = t.Row(`SELECT count(*) FROM versions WHERE team = ? AND team <> '' AND until = 9223372036854775807`, team).Scan(&n)
	return n, err
}

// Count is how many things of a kind there are.
func (t *Tx) Count(kind string) (n int, err error) {
	err = t.Row(`SELECT count(*) FROM versions WHERE kind = ? AND until = 9223372036854775807 AND body IS NOT NULL`, kind).Scan(&n)
	return n, err
}

// Pair is a thing at two revisions; a body that is nil says that it was not there.
type Pair struct{ From, To Version }

// Between gives the things that have versions made after one revision and up to a later one, as they were at both, in order of
// kind and name. Some may be equal at both.
func (t *Tx) Between(from, to uint64) (list []Pair, err error) {
	const columns = `t.kind, t.name, coalesce(a.since, 0), coalesce(a.team, ''), a.body, coalesce(a.created, 0), coalesce(a.updated, 0),
		b.since, b.team, b.body, b.created, b.updated`
	err = t.Tx.Each(func(scan func(...any) error) error {
		var p Pair
		err := scan(&p.From.Kind, &p.From.Name, &p.From.Since, &p.From.Team, &p.From.Body, &p.From.Created, &p.From.Updated,
			&p.To.Since, &p.To.Team, &p.To.Body, &p.To.Created, &p.To.Updated)
		p.To.Kind, p.To.Name = p.From.Kind, p.From.Name
		list = append(list, p)
		return err
	}, `SELECT `+columns+` FROM (SELECT DISTINCT kind, name FROM versions WHERE since > ? AND since <= ?) t
		JOIN versions b ON b.kind = t.kind AND b.name = t.name AND b.since <= ? AND b.until > ?
		LEFT JOIN versions a ON a.kind = t.kind AND a.name = t.name AND a.since <= ? AND a.until > ?
		ORDER BY t.kind, t.name`, from, to, to, to, from, from)
	return list, err
}
