package kube

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestALeaseIsTakenByOurOwnClock: however wrong the holder's is.
func TestALeaseIsTakenByOurOwnClock(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	e := &Elector{Identity: "me"}
	of := func(holder string, renewed time.Time) LeaseSpec {
		at := metav1.NewMicroTime(renewed)
		return LeaseSpec{HolderIdentity: holder, LeaseDurationSeconds: 15, RenewTime: &at}
	}
	for i, step := range []struct {
		after time.Duration
		lease LeaseSpec
		free  bool
	}{
		{0, of("other", now.Add(-time.Hour)), false},
		{14 * time.Second, of("other", now.Add(-time.Hour)), false},
		{time.Second, of("other", now.Add(-time.Hour)), false},
		{time.Millisecond, of("other", now.Add(-time.Hour)), true},
		{time.Second, of("other", now.Add(time.Hour)), false}, // it was renewed
		{10 * time.Second, of("third", now.Add(time.Hour)), false},
		{10 * time.Second, of("third", now.Add(time.Hour)), false},
		{0, of("", now), true},
		{0, of("me", now), true},
	} {
		now = now.Add(step.after)
		e.see(step.lease, now)
		if got := e.free(now); got != step.free {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

func TestHold(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	e := &Elector{Identity: "me"}
	l := e.hold(LeaseSpec{}, now)
	if l.HolderIdentity != "me" || l.LeaseDurationSeconds != 15 || !l.AcquireTime.Time.Equal(now) || !l.RenewTime.Time.Equal(now) || l.LeaseTransitions != 0 {
		t.Errorf("%+v", l)
	}
	l = e.hold(l, now.Add(time.Second))
	if !l.AcquireTime.Time.Equal(now) || !l.RenewTime.Time.Equal(now.Add(time.Second)) || l.LeaseTransitions != 0 {
		t.Errorf("%+v", l)
	}
	l.HolderIdentity = ""
	if l = e.hold(l, now.Add(2*time.Second)); !l.AcquireTime.Time.Equal(now.Add(2*time.Second)) || l.LeaseTransitions != 1 {
		t.Errorf("%+v", l)
	}
}
