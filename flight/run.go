package flight

import (
	"context"
	"sync"
	"time"

	"github.com/spokegate/spokegate/limits"
)

// Run writes the records that need not wait any longer and renews leases, until ctx is done. It returns nil. A limiter that
// hangs holds up no record: the two are done side by side.
func (t *Table) Run(ctx context.Context) error {
	var both sync.WaitGroup
	for _, f := range []func(context.Context){t.expire, t.renew} {
		both.Go(func() { t.every(ctx, f) })
	}
	both.Wait()
	return nil
}

func (t *Table) every(ctx context.Context, f func(context.Context)) {
	ticker := time.NewTicker(t.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// interval is a fraction of what there is to be on time for.
func (t *Table) interval() time.Duration {
	return min(max(min(t.cfg.Grace, t.cfg.LeaseEvery)/8, time.Millisecond), 250*time.Millisecond)
}

func (t *Table) expire(ctx context.Context) {
	now := t.cfg.Now()
	t.mu.Lock()
	free := t.core.expire(now)
	t.mu.Unlock()
	t.free(ctx, free)
}

// renewBatch is how many leases are renewed in one call: few enough for a Redis not to be busy with them for long.
const renewBatch = 128

// renew keeps the leases that are due. Those that failed are due again at the next tick.
func (t *Table) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limiterWait)
	defer cancel()
	var failed []limits.Hold
	var last error
	now := t.cfg.Now()
	for due := t.due(now); len(due) > 0; due = t.due(now) {
		lost, err := t.cfg.Limiter.Renew(ctx, t.cfg.Now(), due)
		if err != nil {
			failed, last = append(failed, due...), err
		}
		for _, h := range lost {
			t.lapsed(h)
		}
	}
	if len(failed) == 0 {
		return
	}
	t.mu.Lock()
	t.core.notRenewed(failed, now)
	t.mu.Unlock()
	t.cfg.Log.Warn("leases were not renewed, it is tried again", "leases", len(failed), "err", last)
}

func (t *Table) due(now time.Time) []limits.Hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.core.renewals(now, renewBatch)
}

// lapsed stops renewing a lease that is gone for good, unless its flight has ended meanwhile, which is ordinary life.
func (t *Table) lapsed(h limits.Hold) {
	t.mu.Lock()
	f := t.core.live(h.Admission)
	if f != nil {
		f.lapsed = true
	}
	t.mu.Unlock()
	if f != nil {
		t.core.metrics.anomalies.WithLabelValues(leaseLost).Inc()
		t.cfg.Log.Warn("a lease was lost while its request runs", "admission", h.Admission)
	}
}

// Close ends what is open as lost, frees it, and writes all records. A flight that is opened afterwards ends at once. The
// servers that call the table should be closed before, and the journal after.
func (t *Table) Close(ctx context.Context) {
	t.mu.Lock()
	n, free := t.core.close(t.cfg.Now())
	t.mu.Unlock()
	if n > 0 {
		t.cfg.Log.Warn("flights were open when the door stopped", "flights", n)
	}
	t.free(ctx, free)
}
