package sim

import (
	"context"
	"sync/atomic"
	"time"
)

// clock turns the rates into waiting. Two queues: running slots, and the one place for prefill.
type clock struct {
	rates   Rates
	slots   chan struct{}
	prefill chan struct{}
	running atomic.Int64
	waiting atomic.Int64
}

func newClock(r Rates) *clock {
	return &clock{rates: r, slots: make(chan struct{}, r.MaxRunning), prefill: make(chan struct{}, 1)}
}

// enter waits for a running slot. leave must be called if there is no error.
func (c *clock) enter(ctx context.Context) (leave func(), err error) {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	if err := take(ctx, c.slots); err != nil {
		return nil, err
	}
	c.running.Add(1)
	return func() {
		c.running.Add(-1)
		<-c.slots
	}, nil
}

func take(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *clock) overhead() time.Duration { return seconds(c.rates.OverheadMS / 1000) }

func (c *clock) prefillTime(tokens int64) time.Duration {
	return seconds(float64(tokens) / c.rates.PrefillTokensPerSecond)
}

// step is the time of one token of one stream at the present load.
func (c *clock) step() time.Duration {
	others := max(c.running.Load()-1, 0)
	return seconds((1 + c.rates.DecodeSlowdown*float64(others)) / c.rates.DecodeTokensPerSecond)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pacer waits for one request's moments. Moments add up from the first, so that small waits do not round up.
type pacer struct {
	due   time.Time
	timer *time.Timer
}

func newPacer() *pacer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &pacer{due: time.Now(), timer: t}
}

// after waits until d after the last moment, or until the client has left.
func (p *pacer) after(ctx context.Context, d time.Duration) error {
	p.due = p.due.Add(d)
	wait := time.Until(p.due)
	if wait <= 0 {
		return context.Cause(ctx)
	}
	p.timer.Reset(wait)
	select {
	case <-p.timer.C:
		return nil
	case <-ctx.Done():
		p.timer.Stop()
		return context.Cause(ctx)
	}
}

// restart makes now the last moment: after waiting in a line.
func (p *pacer) restart() { p.due = time.Now() }
