package sqldb

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// The words of migrations that the two have differently: TEXT_C is a text that is ordered byte by byte, BYTES holds bytes.
var (
	sqliteTypes   = strings.NewReplacer("TEXT_C", "TEXT", "BYTES", "BLOB")
	postgresTypes = strings.NewReplacer("TEXT_C", `TEXT COLLATE "C"`, "BYTES", "BYTEA")
)

// metaSchema is how many migrations were made.
const metaSchema = "schema"

// Migrate makes the migrations that the database has not had, in one transaction; it remembers how many those are, in its table
// meta. A migration is never changed once it was released, only followed by another. A database that has had more is refused.
func (d *DB) Migrate(ctx context.Context, migrations []string) error {
	return d.Update(ctx, func(tx *Tx) error {
		if err := tx.Exec(`CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)`); err != nil {
			return err
		}
		had, err := tx.Number(metaSchema)
		if err != nil {
			return err
		}
		if int(had) > len(migrations) {
			return fmt.Errorf("its schema is %d, of a newer version of spokegate: this one knows %d", had, len(migrations))
		}
		types := sqliteTypes
		if d.postgres {
			types = postgresTypes
		}
		for _, step := range migrations[had:] {
			for statement := range strings.SplitSeq(types.Replace(step), ";") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if err := tx.Exec(statement); err != nil {
					return fmt.Errorf("make its schema: %w", err)
				}
			}
		}
		return tx.Set(metaSchema, strconv.Itoa(len(migrations)))
	})
}

// Meta is a value by its name, of the table meta; empty: there is none.
func (t *Tx) Meta(name string) (value string, err error) {
	_, err = Found(t.Row(`SELECT value FROM meta WHERE name = ?`, name).Scan(&value))
	return value, err
}

// Set puts a value into the table meta.
func (t *Tx) Set(name, value string) error {
	return t.Exec(`INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
}

// Number is a value that is one; 0: there is none.
func (t *Tx) Number(name string) (int64, error) {
	s, err := t.Meta(name)
	if err != nil || s == "" {
		return 0, err
	}
	return strconv.ParseInt(s, 10, 64)
}
