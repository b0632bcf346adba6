package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
)

// Tx is a transaction. It is over when the function that got it returns. Parameters of queries are question marks, in both
// databases; a query has none that is none.
type Tx struct {
	ctx        context.Context
	postgres   bool
	tx         *sql.Tx
	statements map[string]*sql.Stmt // those that are run again and again; the transaction's end closes them
}

// Exec runs a statement.
func (t *Tx) Exec(query string, args ...any) error {
	_, err := t.tx.ExecContext(t.ctx, t.bound(query), args...)
	return err
}

// Changed is Exec, and how many rows it changed.
func (t *Tx) Changed(query string, args ...any) (int64, error) {
	res, err := t.tx.ExecContext(t.ctx, t.bound(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Row runs a query that has one row.
func (t *Tx) Row(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, t.bound(query), args...)
}

// Each calls f with every row of a query.
func (t *Tx) Each(f func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := t.tx.QueryContext(t.ctx, t.bound(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Again is Exec for a statement that comes many times in one transaction.
func (t *Tx) Again(query string, args ...any) error {
	s, err := t.prepared(query)
	if err == nil {
		_, err = s.ExecContext(t.ctx, args...)
	}
	return err
}

// RowAgain is Row for a query that comes many times in one transaction.
func (t *Tx) RowAgain(query string, args ...any) (*sql.Row, error) {
	s, err := t.prepared(query)
	if err != nil {
		return nil, err
	}
	return s.QueryRowContext(t.ctx, args...), nil
}

func (t *Tx) prepared(query string) (*sql.Stmt, error) {
	if s := t.statements[query]; s != nil {
		return s, nil
	}
	s, err := t.tx.PrepareContext(t.ctx, t.bound(query))
	if err == nil {
		t.statements[query] = s
	}
	return s, err
}

// bound writes parameters as the database wants them: $1, $2 … in PostgreSQL.
func (t *Tx) bound(query string) string {
	if !t.postgres {
		return query
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

// Found turns "no row" into false.
func Found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Many is "(?, ?), (?, ?)" and so on: rows of values.
func Many(rows, columns int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", columns), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(row+", ", rows), ", ")
}
