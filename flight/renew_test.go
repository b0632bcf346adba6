package flight

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/limits"
)

func TestLeasesAreRenewedWhileOpen(t *testing.T) {
	r := newRig(Config{LeaseEvery: 10 * time.Second})
	r.open("a")
	r.pass(6 * time.Second)
	r.open("b")
	r.Open(Admission{ID: "free"}, limits.Hold{Admission: "free"}) // counted by no limit
	for range 4 {
		r.pass(5 * time.Second) // at 11, 16, 21, 26
	}
	if r.renewed["a"] != 2 || r.renewed["b"] != 2 || r.renewed["free"] != 0 {
		t.Errorf("%v", r.renewed)
	}
	r.End("a", Facts{Logged: ended()})
	r.pass(time.Minute)
	if r.renewed["a"] != 2 || r.renewed["b"] != 3 {
		t.Errorf("after the end of a: %v", r.renewed)
	}
	r.onRenew = func(_ context.Context, hs []limits.Hold) ([]limits.Hold, error) { return hs, nil }
	r.pass(time.Minute)
	r.pass(time.Minute)
	if r.renewed["b"] != 4 {
		t.Errorf("a lost lease was renewed again: %v", r.renewed)
	}
	if n := testutil.ToFloat64(r.core.metrics.anomalies.WithLabelValues(leaseLost)); n != 1 {
		t.Errorf("%v leases lost", n)
	}
	r.End("b", Facts{Logged: ended()})
	if r.freed("b") != 1 {
		t.Error("a lost lease was not released")
	}
}

// Leases are renewed many in a call. What failed is due again, and not forgotten for a whole turn.
func TestFailedRenewalsAreDueAgain(t *testing.T) {
	r := newRig(Config{LeaseEvery: 10 * time.Second})
	const flights = 2*renewBatch + 1
	for i := range flights {
		r.open(strconv.Itoa(i))
	}
	down := true
	r.onRenew = func(_ context.Context, hs []limits.Hold) ([]limits.Hold, error) {
		if down && slices.ContainsFunc(hs, func(h limits.Hold) bool { return h.Admission == "0" }) {
			return nil, errors.New("redis is away")
		}
		return nil, nil
	}
	r.pass(10 * time.Second)
	if r.renewals != 3 || r.renewed["0"] != 1 || r.renewed[strconv.Itoa(flights-1)] != 1 {
		t.Errorf("%d calls, %v", r.renewals, r.renewed)
	}
	r.End("1", Facts{Logged: ended()}) // its renewal failed too
	down = false
	r.pass(time.Millisecond)
	if r.renewals != 4 || r.renewed["0"] != 2 || r.renewed["1"] != 1 || r.renewed[strconv.Itoa(renewBatch)] != 1 {
		t.Errorf("%d calls, %v", r.renewals, r.renewed)
	}
	r.pass(time.Second)
	if r.renewals != 4 {
		t.Errorf("%d calls: what was renewed is not due", r.renewals)
	}
}

// A limiter that hangs does not hold up the records.
func TestRecordsDoNotWaitForRenewals(t *testing.T) {
	r := newRig(Config{Grace: 10 * time.Millisecond, LeaseEvery: 10 * time.Millisecond, Now: time.Now})
	hangs, goOn := make(chan struct{}), make(chan struct{})
	r.onRenew = func(context.Context, []limits.Hold) ([]limits.Hold, error) {
		hangs <- struct{}{}
		<-goOn // whatever its context says, until the record has come
		return nil, context.DeadlineExceeded
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r.open("hangs")
	go func() { done <- r.Run(ctx) }()
	<-hangs
	r.open("a")
	r.End("a", Facts{Metered: whole()}) // half of the facts: its record waits for Grace
	r.await(t, func() bool { return len(r.records) == 3 })
	cancel()
	close(goOn)
	for {
		select {
		case <-hangs: // a renewal that came before the end
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

func TestRun(t *testing.T) {
	r := newRig(Config{Grace: 20 * time.Millisecond, LeaseEvery: 10 * time.Millisecond, Now: time.Now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.open("a")
	r.await(t, func() bool { return r.renewed["a"] >= 2 })
	r.End("a", Facts{Metered: whole()})
	r.await(t, func() bool { return len(r.records) == 2 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// await waits for a fact; each change is looked at.
func (r *rig) await(t *testing.T, fact func() bool) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		ok := fact()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-limit:
			t.Fatal("it does not happen")
		}
	}
}
