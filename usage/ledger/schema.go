package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// migrations make the schema, step by step; a database remembers how many it has had. A step is never changed once it was
// released, only followed by another. TEXT_C is a text that is ordered byte by byte, BYTES holds bytes.
var migrations = []string{
	// What is counted. hour and open_at are Unix seconds, day is days since 1970, all UTC.
	`CREATE TABLE lanes (lane TEXT PRIMARY KEY, place TEXT NOT NULL);
	CREATE TABLE admissions (admission TEXT PRIMARY KEY, day BIGINT NOT NULL, open_at BIGINT, state BYTES NOT NULL);
	CREATE INDEX admissions_by_day ON admissions (day);
	CREATE INDEX admissions_open ON admissions (open_at) WHERE open_at IS NOT NULL;
	CREATE TABLE dims (dim BIGINT PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
		team TEXT_C NOT NULL, key_id TEXT_C NOT NULL, model TEXT_C NOT NULL, labels TEXT_C NOT NULL, currency TEXT_C NOT NULL);
	CREATE TABLE totals (hour BIGINT NOT NULL, dim BIGINT NOT NULL,
		requests BIGINT NOT NULL, repaired BIGINT NOT NULL, cut BIGINT NOT NULL, failed BIGINT NOT NULL, not_served BIGINT NOT NULL,
		unknown_tokens BIGINT NOT NULL, unknown_cost BIGINT NOT NULL, unserved BIGINT NOT NULL, differing BIGINT NOT NULL,
		prompt_tokens BIGINT NOT NULL, cached_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL,
		undelivered_tokens BIGINT NOT NULL, cost BIGINT NOT NULL, PRIMARY KEY (hour, dim));`,
	// What is not, and why; and what reconciliation told.
	`CREATE TABLE refused (digest TEXT PRIMARY KEY, at BIGINT NOT NULL, reason TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL,
		what TEXT NOT NULL);
	CREATE INDEX refused_by_time ON refused (at);
	CREATE TABLE balances (digest TEXT PRIMARY KEY, at BIGINT NOT NULL, body TEXT NOT NULL);
	CREATE INDEX balances_by_time ON balances (at);`,
}

// Names of what the table meta holds.
const (
	metaSchema  = "schema"  // how many migrations were made
	metaWriter  = "writer"  // who opened the database last
	metaBill    = "bill"    // Bill
	metaHorizon = "horizon" // Unix seconds: admissions before it may be forgotten
	metaRefused = "refused/"
)

// migrate brings the schema up to a number of steps.
func (d *database) migrate(ctx context.Context, steps int) error {
	return d.update(ctx, func(tx *tx) error {
		if err := tx.exec(`CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)`); err != nil {
			return err
		}
		had, err := tx.number(metaSchema)
		if err != nil {
			return err
		}
		if int(had) > steps {
			return fmt.Errorf("the ledger's schema is %d, of a newer version of spokegate: this one knows %d", had, steps)
		}
		for _, step := range migrations[had:steps] {
			for statement := range strings.SplitSeq(d.kind.types.Replace(step), ";") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if err := tx.exec(statement); err != nil {
					return fmt.Errorf("make the ledger's schema: %w", err)
				}
			}
		}
		return tx.set(metaSchema, strconv.Itoa(steps))
	})
}

// meta is a value by its name; empty: there is none.
func (t *tx) meta(name string) (value string, err error) {
	err = t.row(`SELECT value FROM meta WHERE name = ?`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}

func (t *tx) set(name, value string) error {
	return t.exec(`INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
}

// number is a value that is one; 0: there is none.
func (t *tx) number(name string) (int64, error) {
	s, err := t.meta(name)
	if err != nil || s == "" {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}
