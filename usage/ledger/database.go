package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spokegate/spokegate/sqldb"
)

// database is one of the two that there are, and what they have differently.
type database struct {
	*sqldb.DB
	kind *kind
}

// tx is a transaction.
type tx struct {
	*sqldb.Tx
	kind *kind
}

// kind is what SQL leaves to each.
type kind struct {
	lock  string                   // behind a SELECT whose row is to stay as it is until the commit
	clock map[string]string        // of hour: its text, by the length of the time that is asked for
	label func(name string) string // the value of a label, or ''
}

var sqlite = &kind{
	clock: map[string]string{
		"hour": `strftime('%Y-%m-%dT%H:00:00Z', hour, 'unixepoch')`, "day": `strftime('%Y-%m-%d', hour, 'unixepoch')`,
		"month": `strftime('%Y-%m', hour, 'unixepoch')`,
	},
	label: func(name string) string {
		return `CASE WHEN labels = '' THEN '' ELSE coalesce(json_extract(labels, '$."` + name + `"'), '') END`
	},
}

var postgres = &kind{
	lock: " FOR UPDATE",
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
	// What is lost with the power, rows and places together, is read again.
	db, err := sqldb.Open(name, sqldb.Options{What: "the ledger's database"})
	if err != nil {
		return nil, err
	}
	if db.Postgres() {
		return &database{db, postgres}, nil
	}
	return &database{db, sqlite}, nil
}

// update runs f in a transaction that changes all or nothing.
func (d *database) update(ctx context.Context, f func(*tx) error) error {
	return d.Update(ctx, func(t *sqldb.Tx) error { return f(&tx{t, d.kind}) })
}

// view runs f on one state of the database.
func (d *database) view(ctx context.Context, f func(*tx) error) error {
	return d.View(ctx, func(t *sqldb.Tx) error { return f(&tx{t, d.kind}) })
}

// ErrTakenOver: another process opened the ledger to write to it.
var ErrTakenOver = errors.New("another process has taken over the ledger's database: one can write to it")

// takeOver makes this process the writer, and fails where it was opened to bill in another way.
func (d *database) takeOver(ctx context.Context, bill Bill) (writer string, err error) {
	writer = rand.Text()
	return writer, d.update(ctx, func(tx *tx) error {
		had, err := tx.Meta(metaBill)
		if err != nil {
			return err
		}
		if had != "" && had != string(bill) {
			return fmt.Errorf("this ledger bills what was %s; to bill what was %s make a new one, from the same records", had, bill)
		}
		return errors.Join(tx.Set(metaBill, string(bill)), tx.Set(metaWriter, writer))
	})
}

// mine fails if somebody else is the writer, and keeps it so until the commit.
func (t *tx) mine(writer string) error {
	var is string
	if err := t.Row(`SELECT value FROM meta WHERE name = ?`+t.kind.lock, metaWriter).Scan(&is); err != nil {
		return err
	}
	if is != writer {
		return ErrTakenOver
	}
	return nil
}
