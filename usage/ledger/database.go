package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// database is one of the two, as far as they differ.
type database struct {
	kind *kind
	// write has one connection at a time in SQLite, which has one writer; read sees the last commit and waits for nobody.
	write, read *sql.DB
	where       string // for people, without a password
}

// kind is what SQL leaves to each.
type kind struct {
	types    *strings.Replacer        // column types of migrations
	numbered bool                     // parameters are $1, $2 … and not ?
	lock     string                   // behind a SELECT whose row is to stay as it is until the commit
	clock    map[string]string        // of hour: its text, by the length of the time that is asked for
	label    func(name string) string // the value of a label, or ''
}

var sqlite = &kind{
	types: strings.NewReplacer("TEXT_C", "TEXT", "BYTES", "BLOB"),
	clock: map[string]string{
		"hour": `strftime('%Y-%m-%dT%H:00:00Z', hour, 'unixepoch')`, "day": `strftime('%Y-%m-%d', hour, 'unixepoch')`,
		"month": `strftime('%Y-%m', hour, 'unixepoch')`,
	},
	label: func(name string) string {
		return `CASE WHEN labels = '' THEN '' ELSE coalesce(json_extract(labels, '$."` + name + `"'), '') END`
	},
}

var postgres = &kind{
	types:    strings.NewReplacer("TEXT_C", `TEXT COLLATE "C"`, "BYTES", "BYTEA"),
	numbered: true,
	lock:     " FOR UPDATE",
	clock: map[string]string{
		"hour": postgresClock(`YYYY-MM-DD"T"HH24:00:00"Z"`), "day": postgresClock("YYYY-MM-DD"), "month": postgresClock("YYYY-MM"),
	},
	label: func(name string) string {
		return `(CASE WHEN labels = '' THEN '' ELSE coalesce(labels::jsonb ->> '` + name + `', '') END) COLLATE "C"`
	},
}

func postgresClock(form string) string {
	return `to_char(to_timestamp(hour) AT TIME ZONE 'UTC', '` + form + `') COLLATE "C"`
}

// openDatabase opens a file of SQLite, or PostgreSQL by its URL.
func openDatabase(name string) (*database, error) {
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		return openPostgres(name)
	}
	if strings.Contains(name, "://") {
		return nil, errors.New("the ledger's database is a file of SQLite, or a URL that begins with postgres://")
	}
	return openSQLite(name)
}

func openPostgres(name string) (*database, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errors.New("the URL of the ledger's database cannot be read") // err may show a password
	}
	db, err := sql.Open("pgx", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(10)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return &database{postgres, db, db, u.Redacted()}, nil
}

func openSQLite(name string) (*database, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	// SQLite would make it readable for everybody.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the ledger's database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	// A commit is not synced to disk by itself: after a power failure the last ones may be gone, rows and places together, and
	// are read again.
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	write, err := sql.Open("sqlite", file+"&_txlock=immediate&_pragma=cache_size(-65536)")
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	read, err := sql.Open("sqlite", file+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(4)
	return &database{sqlite, write, read, path}, nil
}

func (d *database) close() error {
	if d.read == d.write {
		return d.write.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// update runs f in a transaction that changes all or nothing.
func (d *database) update(ctx context.Context, f func(*tx) error) error {
	t, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(&tx{ctx, d.kind, t}); err != nil {
		return errors.Join(err, ignoreDone(t.Rollback()))
	}
	return t.Commit()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// view runs f on one state of the database.
func (d *database) view(ctx context.Context, f func(*tx) error) error {
	t, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelDefault})
	if err != nil {
		return err
	}
	return errors.Join(f(&tx{ctx, d.kind, t}), ignoreDone(t.Rollback()))
}

// tx is a transaction.
type tx struct {
	ctx  context.Context
	kind *kind
	tx   *sql.Tx
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.tx.ExecContext(t.ctx, t.kind.bound(query), args...)
	return err
}

func (t *tx) row(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, t.kind.bound(query), args...)
}

// each calls f with every row of a query.
func (t *tx) each(f func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := t.tx.QueryContext(t.ctx, t.kind.bound(query), args...)
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

// bound writes parameters as the database wants them. No query has a question mark in it that is none.
func (k *kind) bound(query string) string {
	if !k.numbered {
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

// many is "(?, ?), (?, ?)" and so on: rows of values.
func many(rows, columns int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", columns), ", ") + ")"
	return strings.TrimSuffix(strings.Repeat(row+", ", rows), ", ")
}

// ErrTakenOver: another process opened the ledger to write to it.
var ErrTakenOver = errors.New("another process has taken over the ledger's database: one can write to it")

// takeOver makes this process the writer, and fails where it was opened to bill in another way.
func (d *database) takeOver(ctx context.Context, bill Bill) (writer string, err error) {
	writer = rand.Text()
	return writer, d.update(ctx, func(tx *tx) error {
		had, err := tx.meta(metaBill)
		if err != nil {
			return err
		}
		if had != "" && had != string(bill) {
			return fmt.Errorf("this ledger bills what was %s; to bill what was %s make a new one, from the same records", had, bill)
		}
		return errors.Join(tx.set(metaBill, string(bill)), tx.set(metaWriter, writer))
	})
}

// mine fails if somebody else is the writer, and keeps it so until the commit.
func (t *tx) mine(writer string) error {
	var is string
	if err := t.row(`SELECT value FROM meta WHERE name = ?`+t.kind.lock, metaWriter).Scan(&is); err != nil {
		return err
	}
	if is != writer {
		return ErrTakenOver
	}
	return nil
}

// changed is exec, and how many rows it changed.
func (t *tx) changed(query string, args ...any) (int64, error) {
	res, err := t.tx.ExecContext(t.ctx, t.kind.bound(query), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
