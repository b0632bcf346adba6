package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Config of a Ledger.
type Config struct {
	// Database is a file of SQLite, or the URL of PostgreSQL, postgres://….
	Database string
	// Feed is where records come from.
	Feed Feed
	// Bill says whose count is billed (Generated). A database is of one or the other.
	Bill Bill
	// Keep is for how long an admission is known after its last record (35 days), so that its records count once; at least two
	// days, and longer than any record may be late.
	Keep time.Duration
	// Batch is how many records one transaction counts at most (1,000).
	Batch int

	Now        func() time.Time
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// minKeep leaves room for the margin of forget.
const minKeep = 48 * time.Hour

func (c Config) withDefaults() (Config, error) {
	if c.Bill == "" {
		c.Bill = Generated
	}
	if c.Bill != Generated && c.Bill != Delivered {
		return c, fmt.Errorf("bill what was %q: want %s or %s", c.Bill, Generated, Delivered)
	}
	if c.Keep == 0 {
		c.Keep = 35 * 24 * time.Hour
	}
	if c.Keep < minKeep {
		return c, fmt.Errorf("admissions cannot be kept for %v: want %v or longer", c.Keep, minKeep)
	}
	if c.Batch == 0 {
		c.Batch = 1000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Feed is a place where records come from, in lanes: sequences that can be read on from a place.
type Feed interface {
	// Follow delivers what lies behind the places, by lane; in a lane that has none, all. It goes on until ctx is done, and
	// tries for ever what fails. What it sends on Items it has read; it waits for who receives.
	Follow(ctx context.Context, places map[string]string, items chan<- Item) error
	// Status is how far it is.
	Status() FeedStatus
}

// FeedStatus says how far a feed is.
type FeedStatus struct {
	Looked  time.Time // when it last saw how much there is; zero: not yet
	Pending int64     // what it has not delivered, as seen then: records of Kafka, bytes of spools
	Skipped uint64    // records that were removed before they could be read
	Err     string    // why it fails now; empty: it does not
}

// Item is one record where it was found.
type Item struct {
	Record *usagev1.Record // nil where Err is set
	Err    error           // it is no record
	Lane   string
	Place  string // behind it: where to read on
	Where  string // for people
}

// Ledger counts records into a database.
type Ledger struct {
	cfg     Config
	db      *database
	writer  string
	metrics *metrics
	health  health

	// Only the goroutine of Run touches these.
	places  map[string]string
	horizon int64 // Unix seconds, see metaHorizon
}

// Open opens the database, makes or renews its schema, and takes it over from whoever wrote to it before.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(cfg.Database)
	if err != nil {
		return nil, err
	}
	l := &Ledger{cfg: cfg, db: db, metrics: newMetrics(cfg.Registerer), places: map[string]string{}}
	if err := l.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the ledger's database %s: %w", db.Where(), err), db.Close())
	}
	l.metrics.watch(cfg.Registerer, l)
	return l, nil
}

func (l *Ledger) open(ctx context.Context) (err error) {
	if err := l.db.Migrate(ctx, migrations); err != nil {
		return err
	}
	if l.writer, err = l.db.takeOver(ctx, l.cfg.Bill); err != nil {
		return err
	}
	return l.db.view(ctx, func(tx *tx) (err error) {
		if l.horizon, err = tx.Number(metaHorizon); err != nil {
			return err
		}
		return tx.Each(func(scan func(...any) error) error {
			var lane, place string
			defer func() { l.places[lane] = place }()
			return scan(&lane, &place)
		}, `SELECT lane, place FROM lanes`)
	})
}

// Where is the database, without a password.
func (l *Ledger) Where() string { return l.db.Where() }

// Close closes the database. Run must have returned.
func (l *Ledger) Close() error { return l.db.Close() }
