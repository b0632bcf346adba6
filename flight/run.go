package flight

import (
	"context"
	"errors"
	"time"

	"github.com/spokegate/spokegate/limits"
)

// Run writes the records that need not wait any longer and renews leases, until ctx is done. It returns nil.
func (t *Table) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.tick(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// interval is a fraction of what there is to be on time for.
func (t *Table) interval() time.Duration {
	return min(max(min(t.cfg.Grace, t.cfg.LeaseEvery)/8, time.Millisecond), 250*time.Millisecond)
}

func (t *Table) tick(ctx context.Context) {
	now := t.cfg.Now()
	t.mu.Lock()
	free := t.core.expire(now)
	due := t.core.renewals(now)
	t.mu.Unlock()
	t.free(ctx, free)
	t.renew(ctx, due)
}

// renew keeps leases. All of one round share its time, so that a limiter that hangs does not hold up the records.
func (t *Table) renew(ctx context.Context, due []limits.Hold) {
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limiterWait)
	defer cancel()
	failed := 0
	var last error
	for _, h := range due {
		err := t.cfg.Limiter.Renew(ctx, t.cfg.Now(), h)
		switch {
		case err == nil:
		case errors.Is(err, limits.ErrLost):
			t.lapsed(h)
		default:
			failed, last = failed+1, err
		}
	}
	if failed > 0 {
		t.cfg.Log.Warn("leases were not renewed", "leases", failed, "err", last)
	}
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
	free := t.core.close(t.cfg.Now())
	t.mu.Unlock()
	if len(free) > 0 {
		t.cfg.Log.Warn("flights were open when the door stopped", "flights", len(free))
	}
	t.free(ctx, free)
}
