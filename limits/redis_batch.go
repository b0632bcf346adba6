package limits

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// askBatch bounds a batch, so that the first in it need not wait for many others.
const askBatch = 64

// asks brings questions to Redis. One that finds nothing on its way goes at once. Those that come while others are on their way
// wait, and go together in one pipeline, brought by the one of them that came first: many callers at once cost Redis and the
// door few reads and writes of sockets, and a single caller no change of goroutine.
type asks struct {
	client  redis.UniversalClient
	script  *redis.Script
	timeout time.Duration

	mu      sync.Mutex
	busy    bool // something is on its way
	waiting []*asker
	late    sync.WaitGroup // those whose caller has left and who may have to bring a batch
}

// asker is a call that waits. It hears once: either its answer, or that it is to bring a batch, its own call first in it.
type asker struct {
	call  call
	heard chan heard
}

type heard struct {
	reply string
	err   error
	batch []*asker
}

// ask waits for the answer until ctx is done or the timeout is over, whichever comes first.
func (a *asks) ask(ctx context.Context, c call) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	a.mu.Lock()
	if !a.busy {
		a.busy = true
		a.mu.Unlock()
		defer a.next()
		return a.script.Run(ctx, a.client, c.keys, c.args...).Text()
	}
	w := &asker{call: c, heard: make(chan heard, 1)}
	a.waiting = append(a.waiting, w)
	a.mu.Unlock()
	select {
	case h := <-w.heard:
		return a.listen(ctx, h)
	case <-ctx.Done():
		if !a.leave(w) {
			a.late.Go(func() { // it hears soon, and what it is to bring is not its own alone
				_, _ = a.listen(context.WithoutCancel(ctx), <-w.heard)
			})
		}
		return "", ctx.Err()
	}
}

func (a *asks) listen(ctx context.Context, h heard) (string, error) {
	if h.batch == nil {
		return h.reply, h.err
	}
	return a.bring(ctx, h.batch)
}

// leave takes a call out that still waits.
func (a *asks) leave(w *asker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.waiting {
		if a.waiting[i] == w {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// next lets the first of those that wait bring them.
func (a *asks) next() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		a.busy = false
		return
	}
	n := min(askBatch, len(a.waiting))
	batch := append([]*asker(nil), a.waiting[:n]...)
	rest := copy(a.waiting, a.waiting[n:])
	clear(a.waiting[rest:])
	a.waiting = a.waiting[:rest]
	batch[0].heard <- heard{batch: batch}
}

// bring asks for a whole batch, answers the others in it, and returns the answer to the first. A batch has a timeout of its
// own, as the first in it may have little time left.
func (a *asks) bring(ctx context.Context, batch []*asker) (string, error) {
	defer a.next()
	if len(batch) == 1 && ctx.Err() == nil {
		return a.script.Run(ctx, a.client, batch[0].call.keys, batch[0].call.args...).Text()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	calls := make([]call, len(batch))
	for i, w := range batch {
		calls[i] = w.call
	}
	replies, err := runAll(ctx, a.client, a.script, calls)
	var first heard
	for i, w := range batch {
		h := heard{err: err}
		if replies != nil {
			h.reply, h.err = replies[i].Text()
		}
		if i == 0 {
			first = h
		} else {
			w.heard <- h
		}
	}
	return first.reply, first.err
}
