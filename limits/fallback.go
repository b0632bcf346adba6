package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Primary is the shared store that a Fallback prefers. [Redis] is one.
type Primary interface {
	Limiter
	Rebuilder
	// Restore puts back the leases of requests that run and that the store has lost, and what is to be settled of them; it
	// counts nothing anew in quotas. It returns those that were released.
	Restore(ctx context.Context, now time.Time, hs []Hold) (released []Hold, err error)
	// Announce says that this door is there, for DoorTTL. Its error says that the store is not fit to be asked.
	Announce(ctx context.Context, now time.Time) error
	// Memory names the store's memory, as the last Announce saw it; the name is made up at random when the store begins to
	// remember. Another one than before says that the store has lost all it knew. Empty: not known. Answers at once.
	Memory() string
	DoorTTL() time.Duration
	// Doors that announced themselves, as seen last; at least 1. Answers at once.
	Doors() int
	Close(ctx context.Context) error
}

// FallbackConfig configures a Fallback.
type FallbackConfig struct {
	// Probe is how long after a failure the shared store is tried again, and between tries; it doubles, up to 5 s, while the
	// store comes and goes. Default 100 ms.
	Probe      time.Duration
	Registerer prometheus.Registerer // nil: none
	Log        *slog.Logger          // nil: none
	Now        func() time.Time      // nil: time.Now
}

// Fallback is the Limiter of a door that shares a store with other doors, and goes on by itself when the store is away.
//
// While it is away the door keeps to its share of each limit, in memory: the limit divided by the doors seen last, at
// least one request. Memory knows of what the door has admitted before, so a fall of the store gives nobody a second burst,
// and what still runs takes its places in the share. One call that fails is enough to go over; the others do not wait for
// the store from then on. In the background it is tried until it answers again.
//
// Of quotas it is the share of what is left: at each beat the door reads what all have used, and counts its part of that in
// place of what it knew before, so that reservations which are settled go. On top is what it has admitted by itself, which the
// store does not know. The same totals are what a store gets back that has lost its memory.
//
// A request counts where it was admitted, in the store or in memory, and is renewed and released there; so the two together
// can be above a limit, after the store's return until what began in memory has ended: by at most the shares. A lease that
// the store lost, because it was restarted empty or was away for longer than a lease lives, is put back at its next
// renewal. An admission asked again gets its first answer, whichever of the two gave it.
type Fallback struct {
	primary Primary
	local   *Memory
	cfg     FallbackConfig
	metrics *fallbackMetrics

	ledger  ledger
	outage  atomic.Pointer[outage] // nil: the primary is in use
	tripped chan struct{}          // wakes run
	stop    context.CancelFunc
	ended   chan struct{}
}

var (
	_ Limiter   = (*Fallback)(nil)
	_ Rebuilder = (*Fallback)(nil)
)

// outage is one time without the primary.
type outage struct {
	since time.Time
	err   error
	over  bool // the value that ends one; what began before it cannot begin another
	quick int  // how many before it, in a row, came soon after the primary had come back
}

// NewFallback makes a limiter that asks primary, and local while primary is away. It owns both. Close ends it.
func NewFallback(primary Primary, local *Memory, cfg FallbackConfig) (*Fallback, error) {
	if cfg.Probe <= 0 {
		cfg.Probe = 100 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &Fallback{
		primary: primary, local: local, cfg: cfg, metrics: newFallbackMetrics(cfg.Registerer), ledger: ledger{known: map[totalKey]int64{}},
		tripped: make(chan struct{}, 1), stop: stop, ended: make(chan struct{}),
	}
	go f.run(ctx)
	return f, nil
}

// Acquire implements Limiter. While the primary is away the standing in the answer is that of this door's share.
func (f *Fallback) Acquire(ctx context.Context, now time.Time, ask Ask) (Decision, error) {
	if d, known := f.local.recall(now, ask.Admission); known {
		return d, nil
	}
	share, doors := ask, f.primary.Doors()
	share.Limits, share.doors = shares(ask.Limits, doors, ask.Tokens), doors
	if before := f.outage.Load(); !before.away() {
		d, err := f.primary.Acquire(ctx, now, ask)
		if err == nil && d.Admitted {
			f.local.adopt(now, share, d)
		} else if err == nil {
			f.local.heed(now, share.Limits)
		}
		if err == nil || !f.failed(before, now, err) || left(ctx) {
			return d, err
		}
	}
	return f.local.Acquire(ctx, now, share)
}

// Renew implements Limiter. While the primary is away its leases count as kept.
func (f *Fallback) Renew(ctx context.Context, now time.Time, hs []Hold) (lost []Hold, err error) {
	gone, err := f.local.Renew(ctx, now, hs)
	before := f.outage.Load()
	if err != nil || before.away() {
		return gone, err
	}
	if lost, err = f.renewShared(ctx, now, hs, gone); err != nil && f.failed(before, now, err) {
		return gone, nil
	}
	return lost, err
}

// renewShared renews in the primary what is counted there. gone are those that memory does not know to run.
func (f *Fallback) renewShared(ctx context.Context, now time.Time, hs, gone []Hold) (lost []Hold, err error) {
	ended := map[string]bool{}
	for _, h := range gone {
		ended[h.Admission] = true
	}
	var shared, back []Hold
	for _, h := range hs {
		if !h.local {
			shared = append(shared, h)
		} else if ended[h.Admission] {
			lost = append(lost, h)
		}
	}
	missing, err := f.primary.Renew(ctx, now, shared)
	if err != nil || len(missing) == 0 {
		return lost, err
	}
	for _, h := range missing {
		if ended[h.Admission] {
			lost = append(lost, h)
		} else { // its request runs, so it was not released
			back = append(back, h)
		}
	}
	released, err := f.primary.Restore(ctx, now, back)
	return append(lost, released...), err
}

// Release implements Limiter. What was reserved is settled where it is counted.
func (f *Fallback) Release(ctx context.Context, now time.Time, h Hold, used Used) error {
	err := f.local.Release(ctx, now, h, used)
	if h.local {
		return err
	}
	return f.primary.Release(ctx, now, h, used)
}

func (o *outage) away() bool { return o != nil && !o.over }

// failed says whether an error means that the primary is away, and if so goes over to memory; before is what was known
// when the call began. It is no failure of the primary's when the caller left, or asked what has no answer.
func (f *Fallback) failed(before *outage, now time.Time, err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrNoAdmission) || errors.Is(err, errGiveUp) {
		return false
	}
	o := &outage{since: now, err: err}
	if before != nil && now.Sub(before.since) < steady {
		o.quick = before.quick + 1
	}
	if f.outage.CompareAndSwap(before, o) {
		f.metrics.away.Set(1)
		f.cfg.Log.Error("limits: the shared store is away, this door keeps to its share by itself", "doors", f.primary.Doors(), "err", err)
		select {
		case f.tripped <- struct{}{}:
		default:
		}
	}
	return true
}

// back returns to the primary.
func (f *Fallback) back(now time.Time) {
	o := f.outage.Load()
	if !o.away() {
		return
	}
	f.outage.Store(&outage{since: now, over: true, quick: o.quick})
	f.metrics.away.Set(0)
	f.cfg.Log.Info("limits: the shared store is back", "after", now.Sub(o.since).Round(time.Millisecond), "doors", f.primary.Doors())
}

// Status says in one line who counts, for people and the health page.
func (f *Fallback) Status() string {
	doors := f.primary.Doors()
	if o := f.outage.Load(); o.away() {
		return fmt.Sprintf("this door counts by itself, its share is 1/%d: the shared store is away since %s: %v",
			doors, o.since.UTC().Format(time.RFC3339), o.err)
	}
	if doors == 1 {
		return "shared store, 1 door"
	}
	return fmt.Sprintf("shared store, %d doors", doors)
}

// Away says that the shared store is, so that this door counts by itself.
func (f *Fallback) Away() bool { return f.outage.Load().away() }

// Close ends the background work and closes the primary.
func (f *Fallback) Close(ctx context.Context) error {
	f.stop()
	<-f.ended
	return f.primary.Close(ctx)
}
