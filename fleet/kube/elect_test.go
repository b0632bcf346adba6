package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
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

// leaseServer is not an API server: it has one lease, and answers as it is told. The real one is in test/kube.
func leaseServer(t *testing.T, lease LeaseSpec, get func(), put int) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			refuse(w, put, "Conflict")
			return
		}
		get()
		l := Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: lease}
		l.Kind, l.APIVersion = "Lease", leaseKind.String()
		_ = json.NewEncoder(w).Encode(l)
	}))
	t.Cleanup(s.Close)
	config := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(api.Config{CurrentContext: "c", Contexts: map[string]*api.Context{"c": {Cluster: "c"}},
		Clusters: map[string]*api.Cluster{"c": {Server: s.URL}}}, config); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(config, "spokegate/test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestASlowAnswerIsNotAnOldLease: what was asked long ago was heard just now.
func TestASlowAnswerIsNotAnOldLease(t *testing.T) {
	at := metav1.NewMicroTime(time.Unix(1_000_000, 0))
	asked := time.Now()
	e := &Elector{Identity: "me", Namespace: "n", Name: "l"}
	e.Client = leaseServer(t, LeaseSpec{HolderIdentity: "other", RenewTime: &at}, func() { time.Sleep(2 * time.Millisecond) }, http.StatusOK)
	for _, now := range []time.Time{asked, asked.Add(time.Millisecond)} {
		if ours, err := e.try(t.Context(), now); ours || err != nil {
			t.Errorf("%v, %v", ours, err)
		}
	}
}

// TestAConflictEndsNoLead: who wrote before is seen at the next look.
func TestAConflictEndsNoLead(t *testing.T) {
	for _, leads := range []bool{true, false} {
		e := &Elector{Identity: "me", Namespace: "n", Name: "l", ours: leads}
		e.Client = leaseServer(t, LeaseSpec{HolderIdentity: "me", LeaseDurationSeconds: 15}, func() {}, http.StatusConflict)
		if e.attempt(t.Context()); e.ours != leads || e.err != nil {
			t.Errorf("%v → %v, %v", leads, e.ours, e.err)
		}
	}
}
