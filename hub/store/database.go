package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/spokegate/spokegate/sqldb"
)

// Store is an open database.
type Store struct{ db *sqldb.DB }

// Tx is a transaction. It is over when the function that got it returns.
type Tx struct{ *sqldb.Tx }

// updateLock is what updates of PostgreSQL hold until their commit: a number of our own.
const updateLock = 0x73706f6b65 // "spoke"

// Open opens a file of SQLite, which is made where it is not there, or PostgreSQL by its URL, and brings the schema up to date.
func Open(ctx context.Context, name string) (*Store, error) {
	// What was answered must not be gone after a loss of power, and its number not be given again.
	db, err := sqldb.Open(name, sqldb.Options{What: "the hub's database", Synced: true, Serial: updateLock})
	if err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("the hub's database %s: %w", db.Where(), err), db.Close())
	}
	return &Store{db}, nil
}

// Where names the database for people, without a password.
func (s *Store) Where() string { return s.db.Where() }

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Update runs f in a transaction that changes all or nothing. One runs at a time, over all processes.
func (s *Store) Update(ctx context.Context, f func(*Tx) error) error {
	return s.db.Update(ctx, func(tx *sqldb.Tx) error { return f(&Tx{tx}) })
}

// View runs f on one state of the database.
func (s *Store) View(ctx context.Context, f func(*Tx) error) error {
	return s.db.View(ctx, func(tx *sqldb.Tx) error { return f(&Tx{tx}) })
}
