package worker

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// job is something that takes time, done beside the goroutine that holds it.
type job[T any] struct {
	done   chan T // nil: none runs
	cancel context.CancelFunc
}

func (j *job[T]) runs() bool { return j.done != nil }

// start begins work, which may take most. Its result comes by done; then end must be called.
func (j *job[T]) start(ctx context.Context, most time.Duration, work func(context.Context) T) {
	ctx, j.cancel = context.WithTimeout(ctx, most)
	done := make(chan T, 1)
	j.done = done
	go func() { done <- work(ctx) }()
}

func (j *job[T]) end() {
	j.cancel()
	j.done = nil
}

// stop cuts it and waits for its result; false: none ran.
func (j *job[T]) stop() (result T, ran bool) {
	if !j.runs() {
		return result, false
	}
	j.cancel()
	result = <-j.done
	j.done = nil
	return result, true
}

// inbox takes lives in order from a goroutine that must not wait.
type inbox struct {
	filled chan struct{}

	mu    sync.Mutex
	queue []Life
}

func newInbox() inbox { return inbox{filled: make(chan struct{}, 1)} }

func (i *inbox) put(l Life) {
	i.mu.Lock()
	i.queue = append(i.queue, l)
	i.mu.Unlock()
	select {
	case i.filled <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []Life {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := i.queue
	i.queue = nil
	return all
}

// traffic notes when the engine has sent a byte of an answer: a sign of life also of engines that count nothing.
type traffic struct {
	to http.RoundTripper
	at atomic.Int64 // Unix nanoseconds; 0: never
}

func (t *traffic) last() time.Time { return time.Unix(0, t.at.Load()) }

func (t *traffic) RoundTrip(q *http.Request) (*http.Response, error) {
	resp, err := t.to.RoundTrip(q)
	if err == nil {
		t.at.Store(time.Now().UnixNano())
		resp.Body = &noted{resp.Body, t}
	}
	return resp, err
}

type noted struct {
	io.ReadCloser
	in *traffic
}

func (n *noted) Read(p []byte) (int, error) {
	read, err := n.ReadCloser.Read(p)
	if read > 0 {
		n.in.at.Store(time.Now().UnixNano())
	}
	return read, err
}
