package flight

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits"
)

// Leases is what the table needs of a limits.Limiter. Errors are logged; a renewal is tried again, a release is not: the
// lease expires by itself. Release must not wait for a network.
type Leases interface {
	Renew(ctx context.Context, now time.Time, hs []limits.Hold) (lost []limits.Hold, err error)
	Release(ctx context.Context, now time.Time, h limits.Hold, used limits.Used) error
}

// Journal takes the records. Append is called under the table's lock, so that *admitted* comes before *usage*: it must not
// block. It owns the record.
type Journal interface {
	Append(r *usagev1.Record)
}

// Booking is a place on a worker. Its methods are idempotent and safe for concurrent use; after Release none but Served has
// an effect.
type Booking interface {
	Serving(worker string) // ADDRESS:PORT that really serves it
	FirstByte()
	Release()
	// Served tells of a good answer how many tokens of the prompt the engine had in its cache; nil: it does not say.
	Served(cached *int64)
}

// Config of a table.
type Config struct {
	Limiter Leases
	Journal Journal
	// Spoke is named in every record; Door in log lines.
	Spoke, Door string
	// Grace is how long an ended flight's record waits for the rest of its facts (6 s: Envoy lets go of a cut meter after 3 s).
	Grace time.Duration
	// Orphan is how long a flight without a meter waits for a sign of life or the end from the access log (15 min: longer than Envoy
	// lets a request idle). Envoy sends the log within milliseconds of the end; this is for a log that was lost on the way.
	Orphan time.Duration
	// LeaseEvery is the time between renewals of an open flight's lease: a third of the lease's life (10 s).
	LeaseEvery time.Duration
	Registerer prometheus.Registerer // takes the metrics of one table; nil: none
	Log        *slog.Logger          // nil: none
	Now        func() time.Time      // nil: time.Now
}

// doorStopped is why flights are lost that are open when the door stops.
const doorStopped = "door_stopped"

// logOverdue is why flights are lost that no meter sees, and of which the access log has long said nothing.
const logOverdue = "log_overdue"

// limiterWait bounds a renewal by a limiter, which may lie across a network.
const limiterWait = 2 * time.Second

// Table holds the flights of a door. Its methods are safe for concurrent use.
type Table struct {
	cfg Config

	mu   sync.Mutex // held for microseconds: no call out but Journal.Append
	core core
}

// New makes an empty table. Somebody has to call Run.
func New(cfg Config) *Table {
	if cfg.Grace <= 0 {
		cfg.Grace = 6 * time.Second
	}
	if cfg.Orphan <= 0 {
		cfg.Orphan = 15 * time.Minute
	}
	if cfg.LeaseEvery <= 0 {
		cfg.LeaseEvery = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("door", cfg.Door)
	return &Table{cfg: cfg, core: core{
		spoke: cfg.Spoke, journal: cfg.Journal, metrics: newMetrics(cfg.Registerer), grace: cfg.Grace, leaseEvery: cfg.LeaseEvery, orphan: cfg.Orphan,
		flights: map[string]*flight{}, recent: newRecent(),
	}}
}

// Open begins the flight of an admission and journals *admitted*. The table owns hold from here on. False: this admission
// has a flight already, or had one; then nothing changes, and hold is that flight's (an admission has one hold).
func (t *Table) Open(a Admission, hold limits.Hold) (opened bool) {
	t.mu.Lock()
	opened, free := t.core.start(a, hold, t.cfg.Now())
	t.mu.Unlock()
	t.free(context.Background(), free)
	return opened
}

// Live says whether an admission has a flight that has not ended.
func (t *Table) Live(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.core.live(id) != nil
}

// Book gives a flight its worker's booking; one that it had is released: the latest answer is the one that Envoy follows.
// False: there is no such open flight, and the caller must release b.
func (t *Table) Book(id string, b Booking) bool {
	t.mu.Lock()
	before, ok := t.core.book(id, b)
	t.mu.Unlock()
	if before != nil {
		before.Release()
	}
	return ok
}

// FirstByte notes that the response began, which worker serves it (empty: not known), and who counts it (nil: nobody).
func (t *Table) FirstByte(id, served string, at time.Time, m Meter) {
	t.mu.Lock()
	b := t.core.begin(id, served, at, m)
	t.mu.Unlock()
	tellBegun(b, served)
}

// tellBegun tells a booking, if there is one, that its prompt is computed.
func tellBegun(b Booking, served string) {
	if b == nil {
		return
	}
	if served != "" {
		b.Serving(served)
	}
	b.FirstByte()
}

// Began notes that a worker of the endpoint, at served, has begun to answer: it says so itself, of requests that it may have.
func (t *Table) Began(id, endpoint, served string) {
	t.mu.Lock()
	var b Booking
	if f := t.core.live(id); f != nil && f.admission.Endpoint == endpoint {
		b = t.core.begin(id, served, time.Time{}, nil)
	}
	t.mu.Unlock()
	tellBegun(b, served)
}

// Passed notes that a request runs, so that it is not given up, and what has passed of its answer, should Envoy die; nil: a Meter
// knows, or nobody.
func (t *Table) Passed(id string, m *Metered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.core.pass(id, m, t.cfg.Now())
}

// End takes facts that say that a flight is over. The first ones free its booking and its leases before End returns, except
// that a hold that counts in quotas is settled in the same step, and waits a quarter of a second for facts that say how much
// was used. The usage record is written when both parts are known, or Config.Grace after the first. Facts without anything in
// them do nothing.
func (t *Table) End(id string, f Facts) {
	t.mu.Lock()
	free := t.core.end(id, f, t.cfg.Now())
	t.mu.Unlock()
	t.free(context.Background(), free)
}

// Lose ends every flight that was admitted before a moment and has not ended, because its Envoy is gone, for example. It
// returns how many there were. What meter or log tell of them within Config.Grace counts; else what had passed when Envoy told
// last.
func (t *Table) Lose(before time.Time, reason string) int {
	t.mu.Lock()
	n, free := t.core.lose(before, reason, t.cfg.Now())
	t.mu.Unlock()
	t.free(context.Background(), free)
	return n
}

// Len is the number of flights whose usage record is not written yet: the open ones and those that wait for facts.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.core.flights)
}

// free gives back what ended flights held. ctx is not the one of the call in which a flight ended: that is often done.
func (t *Table) free(ctx context.Context, list []freed) {
	for _, f := range list {
		switch {
		case f.booking == nil:
		case f.report != nil:
			f.booking.Served(f.report.Usage.Cached)
		default:
			f.booking.Release()
		}
		if f.bill.hold.Admission == "" {
			continue
		}
		used := f.bill.used()
		t.core.metrics.settle(&f.bill, used)
		if err := t.cfg.Limiter.Release(ctx, t.cfg.Now(), f.bill.hold, used); err != nil {
			t.cfg.Log.Warn("a lease was not released, it will expire", "admission", f.bill.hold.Admission, "err", err)
		}
	}
}
