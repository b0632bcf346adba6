package usage

import (
	"context"
	"errors"
	"sync"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// ErrLost: records that had been appended could not be brought to disk and were given up.
var ErrLost = errors.New("usage: records were lost")

// queue is what stands between those who append and the writer. It holds at most limit records, those that the writer has
// taken but not yet settled included. Its mutex is held for a few instructions at a time.
type queue struct {
	limit int
	some  chan struct{} // the first record has come
	hurry chan struct{} // do not wait for the window: a batch is full, somebody flushes, or it is closed

	mu       sync.Mutex
	waiting  []*usagev1.Record
	accepted uint64        // records ever let in
	settled  uint64        // of those, synced or given up
	dropped  uint64        // of those, given up
	progress chan struct{} // closed when settled grows
	closed   bool
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, some: make(chan struct{}, 1), hurry: make(chan struct{}, 1), progress: make(chan struct{})}
}

// put lets r in, or says why not.
func (q *queue) put(r *usagev1.Record) (lost string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return lostClosed
	}
	if int(q.accepted-q.settled) >= q.limit {
		return lostQueueFull
	}
	q.accepted++
	q.waiting = append(q.waiting, r)
	switch len(q.waiting) {
	case 1:
		signal(q.some)
	case batchRecords:
		signal(q.hurry)
	}
	return ""
}

// signal wakes the writer, or does nothing if it has been told already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// taken is what the writer gets of the queue.
type taken struct {
	records []*usagev1.Record
	hurry   bool // somebody waits for what is taken
	over    bool // the queue is closed, and empty
}

// take waits for a first record, then up to window for company, and returns at most a batch; none when it is woken before.
func (q *queue) take(window time.Duration, wake <-chan time.Time) (t taken) {
	n, closed := q.state()
	for n == 0 {
		if closed {
			return taken{over: true}
		}
		select {
		case <-q.some:
		case <-q.hurry:
			t.hurry = true
		case <-wake:
			return t
		}
		if n, closed = q.state(); n == 0 && t.hurry {
			return t
		}
	}
	if n < batchRecords && !closed && !t.hurry {
		timer := time.NewTimer(window)
		select {
		case <-timer.C:
		case <-q.hurry:
			t.hurry = true
		}
		timer.Stop()
	}
	t.records = q.cut()
	return t
}

func (q *queue) state() (waiting int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.closed
}

func (q *queue) cut() []*usagev1.Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), batchRecords)
	taken := make([]*usagev1.Record, n)
	copy(taken, q.waiting)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return taken
}

// settle says what became of n records that were taken.
func (q *queue) settle(n, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled += uint64(n)
	q.dropped += uint64(dropped)
	close(q.progress)
	q.progress = make(chan struct{})
}

// flush waits until all that is in has been settled.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	upTo, dropped := q.accepted, q.dropped
	q.mu.Unlock()
	for {
		q.mu.Lock()
		done, lost, progress := q.settled >= upTo, q.dropped > dropped, q.progress
		q.mu.Unlock()
		switch {
		case done && lost:
			return ErrLost
		case done:
			return nil
		}
		signal(q.hurry)
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close lets nothing more in.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.hurry)
}
