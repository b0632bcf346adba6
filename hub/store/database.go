package store

import (
	"context"
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

// Store is an open database.
type Store struct {
	postgres bool
	// write has one connection at a time in SQLite, which has one writer; read sees the last commit and waits for nobody.
	write, read *sql.DB
	where       string
}

// Open opens a file of SQLite, which is made where it is not there, or PostgreSQL by its URL, and brings the schema up to date.
func Open(ctx context.Context, name string) (*Store, error) {
	var s *Store
	var err error
	switch {
	case strings.HasPrefix(name, "postgres://"), strings.HasPrefix(name, "postgresql://"):
		s, err = openPostgres(name)
	case strings.Contains(name, "://"):
		err = errors.New("the hub's database is a file of SQLite, or a URL that begins with postgres://")
	default:
		s, err = openSQLite(name)
	}
	if err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, len(migrations)); err != nil {
		return nil, errors.Join(fmt.Errorf("the hub's database %s: %w", s.where, err), s.Close())
	}
	return s, nil
}

func openPostgres(name string) (*Store, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errors.New("the URL of the hub's database cannot be read") // err may show a password
	}
	db, err := sql.Open("pgx", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(10)
	db.SetConnMaxIdleTime(5 * time.Minute)
	shown := u.Query() // a password may stand there too
	for name := range shown {
		if strings.Contains(name, "password") {
			shown.Del(name)
		}
	}
	u.RawQuery = shown.Encode()
	return &Store{true, db, db, u.Redacted()}, nil
}

func openSQLite(name string) (*Store, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	// SQLite would make it readable for everybody.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the hub's database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	// Each commit is synced: what was answered must not be gone after a loss of power, and its number not be given again.
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
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
	return &Store{false, write, read, path}, nil
}

// Where names the database for people, without a password.
func (s *Store) Where() string { return s.where }

// Close closes the database.
func (s *Store) Close() error {
	if s.read == s.write {
		return s.write.Close()
	}
	return errors.Join(s.read.Close(), s.write.Close())
}

// updateLock is what updates of PostgreSQL hold until their commit: a number of our own.
const updateLock = 0x73706f6b65 // "spoke"

// Update runs f in a transaction that changes all or nothing. One runs at a time, over all processes.
func (s *Store) Update(ctx context.Context, f func(*Tx) error) error {
	t, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	tx := &Tx{ctx: ctx, postgres: s.postgres, tx: t, statements: map[string]*sql.Stmt{}}
	if s.postgres {
		err = tx.exec(`SELECT pg_advisory_xact_lock(?)`, updateLock)
	}
	if err == nil {
		err = f(tx)
	}
	if err != nil {
		return errors.Join(err, ignoreDone(t.Rollback()))
	}
	return t.Commit()
}

// View runs f on one state of the database.
func (s *Store) View(ctx context.Context, f func(*Tx) error) error {
	options := &sql.TxOptions{ReadOnly: true}
	if s.postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	t, err := s.read.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	tx := &Tx{ctx: ctx, postgres: s.postgres, tx: t, statements: map[string]*sql.Stmt{}}
	return errors.Join(f(tx), ignoreDone(t.Rollback()))
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Tx is a transaction. It is over when the function that got it returns.
type Tx struct {
	ctx        context.Context
	postgres   bool
	tx         *sql.Tx
	statements map[string]*sql.Stmt // those that are run again and again; the transaction's end closes them
}

func (t *Tx) exec(query string, args ...any) error {
	_, err := t.tx.ExecContext(t.ctx, t.bound(query), args...)
	return err
}

// prepared is a query that comes many times in a transaction.
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

// again is exec of a query that comes many times.
func (t *Tx) again(query string, args ...any) error {
	s, err := t.prepared(query)
	if err == nil {
		_, err = s.ExecContext(t.ctx, args...)
	}
	return err
}

func (t *Tx) row(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, t.bound(query), args...)
}

// each calls f with every row of a query.
func (t *Tx) each(f func(scan func(...any) error) error, query string, args ...any) error {
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

// bound writes parameters as the database wants them: $1, $2 … and not ?. No query has a question mark in it that is none.
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

// found turns "no row" into false.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
