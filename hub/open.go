package hub

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/hub/deploy"
	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/policy"
)

// Config is a hub's.
type Config struct {
	// Database is a file of SQLite, which is made where it is not there, or a URL of PostgreSQL.
	Database string
	// Templates is a folder whose files STACK.yaml.tmpl go before the built-in ones of deployments; "": none.
	Templates string
	Now       func() time.Time      // nil: time.Now
	Log       *slog.Logger          // nil: slog.Default
	Reg       prometheus.Registerer // nil: none
	// Poll is how often the database is looked at for what other processes commit; 0: four times a second.
	Poll time.Duration
}

// Hub is the control plane over one database, which other hubs may share. Its methods may be called by many at once.
type Hub struct {
	cfg   Config
	store *store.Store
	m     *metrics
	stop  context.CancelFunc
	done  chan struct{}

	templates *deploy.Templates
	reports   told

	mu    sync.Mutex // held by who makes the next state
	state atomic.Pointer[state]
	// behind is why what is new in the database could not be taken up at the last look; nil: it was.
	behind atomic.Pointer[error]

	waitMu  sync.Mutex
	changed chan struct{} // closed at the next state; nil: nobody waits

	cutsMu sync.Mutex
	cuts   map[string]spokeCut
}

// Open opens the database and reads the latest revision. Close the hub in the end.
func Open(ctx context.Context, cfg Config) (*Hub, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Poll == 0 {
		cfg.Poll = 250 * time.Millisecond
	}
	templates, err := deploy.Load(cfg.Templates)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, cfg.Database)
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, store: s, done: make(chan struct{}), templates: templates, cuts: map[string]spokeCut{}}
	err = s.View(ctx, func(tx *store.Tx) error {
		r, err := tx.Head()
		if err != nil {
			return err
		}
		st, err := load(tx, revisionOf(r), cfg.Now())
		if err != nil {
			return err
		}
		if r.Number > 0 && st.head.Digest != r.Digest {
			cfg.Log.Warn("the latest revision reads differently than when it was made, by another release perhaps",
				"revision", r.Number, "digest", st.head.Digest, "was", r.Digest)
		}
		h.state.Store(st)
		return nil
	})
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	h.m = newMetrics(cfg.Reg, h)
	run, stop := context.WithCancel(context.Background())
	h.stop = stop
	go h.run(run)
	return h, nil
}

// Close ends the hub.
func (h *Hub) Close() error {
	h.stop()
	<-h.done
	return h.store.Close()
}

// run looks for what other processes have committed.
func (h *Hub) run(ctx context.Context) {
	defer close(h.done)
	tick := time.NewTicker(h.cfg.Poll)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.follow(ctx)
		if err != nil && ctx.Err() == nil {
			h.m.databaseErrors.Inc()
			if !failing {
				h.cfg.Log.Error("what is new in the database cannot be taken up; what is held goes on", "database", h.store.Where(), "error", err)
			}
		}
		failing = err != nil
	}
}

// follow takes up revisions that are in the store and not here. A commit of our own, which is being made, is not waited for.
func (h *Hub) follow(ctx context.Context) error {
	if !h.mu.TryLock() {
		return nil
	}
	defer h.mu.Unlock()
	err := h.store.View(ctx, func(tx *store.Tx) error { return h.catchUp(tx) })
	if err == nil {
		h.behind.Store(nil)
	} else {
		h.behind.Store(&err)
	}
	return err
}

// Behind is why this hub does not have what is in its database; nil: it does, or did a moment ago.
func (h *Hub) Behind() error {
	if err := h.behind.Load(); err != nil {
		return *err
	}
	return nil
}

// catchUp makes the state that of the store. mu is held.
func (h *Hub) catchUp(tx *store.Tx) error {
	r, err := tx.Head()
	if err != nil {
		return err
	}
	st := h.state.Load()
	if is := revisionOf(r); is.Number == st.head.Number && is.At.Equal(st.head.At) {
		return nil
	}
	var next *state
	stands, err := stillThere(tx, st.head)
	switch {
	case err != nil:
		return err
	case stands:
		next, err = st.follow(tx, revisionOf(r), h.cfg.Now())
	default:
		h.cfg.Log.Error("the hub's database is another than before, restored from a copy perhaps; what it has now is in force. See Backup in docs/hub.md",
			"database", h.store.Where(), "revision", r.Number, "was", st.head.Number)
		next, err = load(tx, revisionOf(r), h.cfg.Now())
	}
	if err != nil {
		return err
	}
	h.publish(next)
	return nil
}

// stillThere says whether a revision is in the store as it was: what is newer there was made upon it.
func stillThere(tx *store.Tx, r Revision) (bool, error) {
	if r.Number == 0 {
		return true, nil
	}
	had, ok, err := tx.Revision(r.Number)
	return ok && revisionOf(had).At.Equal(r.At), err
}

// publish puts a state in force.
func (h *Hub) publish(st *state) {
	h.state.Store(st)
	h.dropCuts()
	h.waitMu.Lock()
	defer h.waitMu.Unlock()
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Changed is closed at the next revision. Take the channel first, then the cut.
func (h *Hub) Changed() <-chan struct{} {
	h.waitMu.Lock()
	defer h.waitMu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// Where is the database as it may be told: without a password.
func (h *Hub) Where() string { return h.store.Where() }

// Head is the latest revision; Number 0: there is none.
func (h *Hub) Head() Revision { return h.state.Load().head }

// Snapshot is the latest revision of all spokes together, compiled for look-up.
func (h *Hub) Snapshot() *policy.Snapshot { return h.state.Load().snap }
