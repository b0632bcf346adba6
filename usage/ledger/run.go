package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// batchWait is how long a batch that is not full waits for more.
	batchWait = 200 * time.Millisecond
	// forgetEvery is how often old admissions are looked for.
	forgetEvery = 10 * time.Minute
	// retryFirst and retryMost are how long it waits after a transaction that failed.
	retryFirst, retryMost = 100 * time.Millisecond, 10 * time.Second
)

// Run counts what the feed delivers until ctx is done, and returns nil then. A transaction that fails is tried again for ever
// ([Ledger.Status] tells), but for ErrTakenOver, which ends it.
func (l *Ledger) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	items := make(chan Item, 2*l.cfg.Batch)
	places := make(map[string]string, len(l.places))
	for lane, place := range l.places {
		places[lane] = place
	}
	g.Go(func() error { return l.cfg.Feed.Follow(ctx, places, items) })
	g.Go(func() error { return l.count(ctx, items) })
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// count is the one goroutine that writes.
func (l *Ledger) count(ctx context.Context, items <-chan Item) error {
	var forgot time.Time
	for {
		list := l.collect(ctx, items)
		if ctx.Err() != nil {
			return nil // what is in list is read again
		}
		if len(list) > 0 {
			if err := l.persist(ctx, func() error { return l.commit(ctx, list) }); err != nil {
				return err
			}
			continue
		}
		l.health.succeeded(l.cfg.Now())
		if !l.caughtUp() || l.cfg.Now().Sub(forgot) < forgetEvery {
			continue
		}
		all := false
		err := l.persist(ctx, func() (err error) { all, err = l.forget(ctx); return err })
		if err != nil {
			return err
		}
		if all {
			forgot = l.cfg.Now()
		}
	}
}

// collect waits for the next items: a full batch, or what comes within batchWait.
func (l *Ledger) collect(ctx context.Context, items <-chan Item) (list []Item) {
	enough := time.NewTimer(batchWait)
	defer enough.Stop()
	for len(list) < l.cfg.Batch {
		select {
		case it := <-items:
			list = append(list, it)
		case <-enough.C:
			return list
		case <-ctx.Done():
			return list
		}
	}
	return list
}

// caughtUp tells whether the feed has nothing left, so that what is old can be forgotten.
func (l *Ledger) caughtUp() bool {
	s := l.cfg.Feed.Status()
	return s.Err == "" && !s.Looked.IsZero() && s.Pending == 0
}

// persist tries until it works, or must not go on.
func (l *Ledger) persist(ctx context.Context, f func() error) error {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		begun := time.Now()
		err := f()
		if err == nil {
			l.metrics.commits.Observe(time.Since(begun).Seconds())
			l.health.succeeded(l.cfg.Now())
			return nil
		}
		if errors.Is(err, ErrTakenOver) || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		l.health.failed(err)
		l.metrics.failures.Inc()
		l.cfg.Log.Error("the ledger cannot be written; it is tried again", "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Status says how the ledger is.
type Status struct {
	Feed      FeedStatus
	Err       string    // why the database cannot be written to now; empty: it can
	Committed time.Time // when it last could; zero: not yet
}

// Status says how the ledger is.
func (l *Ledger) Status() Status {
	s := l.health.status()
	s.Feed = l.cfg.Feed.Status()
	return s
}

// health is what the writing goroutine lets others know.
type health struct {
	mu  sync.Mutex
	err string
	at  time.Time
}

func (h *health) succeeded(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err, h.at = "", now
}

func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err.Error()
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Status{Err: h.err, Committed: h.at}
}
