// Package sqldb is a database that is either a file of SQLite or a PostgreSQL: one way to open it, to bring its schema up to date,
// and to read and write it, with the same SQL in both. What their SQL has differently is its caller's.
//
// It promises that a transaction is there whole or not at all, that a file is its owner's alone, and that no password is in an
// error or in [DB.Where].
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// Options are those of a database.
type Options struct {
	// What names it in messages: "the ledger's database".
	What string
	// Synced makes SQLite sync each commit to disk. Without it the last ones may be gone after a loss of power, each of them whole.
	// PostgreSQL does as its server is set.
	Synced bool
	// Serial makes updates of PostgreSQL come one after the other, over all processes that give the same number; 0: they do not.
	// SQLite has one writer anyway.
	Serial int64
}

// DB is an open database.
type DB struct {
	options  Options
	postgres bool
	// write has one connection at a time in SQLite, which has one writer; read sees the last commit and waits for nobody.
	write, read *sql.DB
	where       string
}

// Open opens a file of SQLite, which is made where it is not there, or PostgreSQL by its URL. It need not answer yet.
func Open(name string, o Options) (*DB, error) {
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		return openPostgres(name, o)
	}
	if strings.Contains(name, "://") {
		return nil, errors.New(o.What + " is a file of SQLite, or a URL that begins with postgres://")
	}
	return openSQLite(name, o)
}

func openPostgres(name string, o Options) (*DB, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errors.New("the URL of " + o.What + " cannot be read") // err may show a password
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
	return &DB{o, true, db, db, u.Redacted()}, nil
}

func openSQLite(name string, o Options) (*DB, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	// SQLite would make it readable for everybody.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.What, err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	sync := "NORMAL"
	if o.Synced {
		sync = "FULL"
	}
	file := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(" + sync + ")"
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
	return &DB{o, false, write, read, path}, nil
}

// Postgres says which of the two it is.
func (d *DB) Postgres() bool { return d.postgres }

// Where names the database for people, without a password.
func (d *DB) Where() string { return d.where }

// Close closes the database.
func (d *DB) Close() error {
	if d.read == d.write {
		return d.write.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// Update runs f in a transaction that changes all or nothing.
func (d *DB) Update(ctx context.Context, f func(*Tx) error) error {
	t, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	tx := &Tx{ctx: ctx, postgres: d.postgres, tx: t, statements: map[string]*sql.Stmt{}}
	if d.postgres && d.options.Serial != 0 {
		err = tx.Exec(`SELECT pg_advisory_xact_lock(?)`, d.options.Serial)
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
func (d *DB) View(ctx context.Context, f func(*Tx) error) error {
	options := &sql.TxOptions{ReadOnly: true}
	if d.postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	t, err := d.read.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	return errors.Join(f(&Tx{ctx: ctx, postgres: d.postgres, tx: t, statements: map[string]*sql.Stmt{}}), ignoreDone(t.Rollback()))
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
