package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	errFull   = errors.New("limits: too many releases wait for redis; the lease will expire")
	errClosed = errors.New("limits: closed; the lease will expire")
)

// freeing is one release on its way.
type freeing struct {
	hold    Hold
	used    Used
	attempt int64     // of an ask that is given up; 0: a release
	at      time.Time // when it was released, by the caller's clock
	queued  time.Time
}

// releases is a queue before Redis with a goroutine that empties it, in batches and in order. While Redis is away they wait,
// at most as long as a lease lives: by then the lease has expired anyway.
type releases struct {
	free    func(context.Context, []freeing) error // idempotent
	max     int
	keep    time.Duration
	lost    prometheus.Counter
	wake    chan struct{}
	closing chan struct{}
	ended   chan struct{}
	stop    context.CancelFunc

	mu          sync.Mutex
	waiting     []freeing
	added, done uint64
	waiters     []waiter
	closed      bool
}

// waiter wants to know when the release with this number is done.
type waiter struct {
	number uint64
	ready  chan struct{}
}

const (
	batchLen   = 128                    // releases in one round trip
	retryAfter = 100 * time.Millisecond // after a batch that failed
)

func newReleases(max int, keep time.Duration, lost prometheus.Counter, free func(context.Context, []freeing) error) *releases {
	ctx, stop := context.WithCancel(context.Background())
	q := &releases{
		free: free, max: max, keep: keep, wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		stop: stop, lost: lost,
	}
	go q.run(ctx)
	return q
}

// add puts a release at the end of the queue.
func (q *releases) add(f freeing) error {
	f.queued = time.Now() // how long it waits is no business of the limiter's clock
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.lost.Inc()
		return errClosed
	}
	if len(q.waiting) >= q.max {
		q.lost.Inc()
		return errFull
	}
	q.waiting = append(q.waiting, f)
	q.added++
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// run empties the queue until it is closed and empty, or closed and Redis away.
func (q *releases) run(ctx context.Context) {
	defer close(q.ended)
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-q.wake:
		case <-retry.C:
		case <-q.closing:
			_ = q.empty(ctx) // what is left is counted in close
			return
		}
		if q.empty(ctx) != nil {
			retry.Reset(retryAfter)
		}
	}
}

// empty sends batches until nothing waits or one fails.
func (q *releases) empty(ctx context.Context) error {
	for {
		batch := q.next(time.Now())
		if len(batch) == 0 {
			return nil
		}
		if err := q.free(ctx, batch); err != nil {
			return err
		}
		q.mu.Lock()
		q.drop(len(batch))
		q.mu.Unlock()
	}
}

// next gives the first of those that wait, and lets go what has waited too long. They stay in the queue.
func (q *releases) next(now time.Time) []freeing {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := 0
	for old < len(q.waiting) && now.Sub(q.waiting[old].queued) >= q.keep {
		old++
	}
	q.lost.Add(float64(old))
	q.drop(old)
	return append([]freeing(nil), q.waiting[:min(batchLen, len(q.waiting))]...)
}

// drop takes the first n out. Called with the lock.
func (q *releases) drop(n int) {
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil // let the array go
	}
	q.done += uint64(n)
	keep := q.waiters[:0]
	for _, w := range q.waiters {
		if w.number <= q.done {
			close(w.ready)
		} else {
			keep = append(keep, w)
		}
	}
	q.waiters = keep
}

// flush waits for what has been added so far.
func (q *releases) flush(ctx context.Context) error {
	q.mu.Lock()
	w := waiter{q.added, make(chan struct{})}
	if w.number <= q.done {
		close(w.ready)
	} else {
		q.waiters = append(q.waiters, w)
	}
	q.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.ended:
		return errClosed
	}
}

// close sends what waits, once. ctx bounds it.
func (q *releases) close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.closing)
	}
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-ctx.Done():
		q.stop()
		<-q.ended
	}
	q.stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	left := len(q.waiting)
	if left == 0 {
		return nil
	}
	q.lost.Add(float64(left))
	q.drop(left)
	return fmt.Errorf("limits: %d releases did not reach redis; their leases will expire", left)
}
