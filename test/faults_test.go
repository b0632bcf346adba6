package test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// traffic is light and goes on; errors are part of it while something is broken.
type traffic struct {
	stop func()
	sent atomic.Int64
	good atomic.Int64
}

func startTraffic(u *up) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{}
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				body := fmt.Sprintf(`{"model":"sim-small","max_tokens":25,"stream":true,"messages":[{"role":"user","content":"client %d request %d"}]}`, i, n)
				call, done := context.WithTimeout(ctx, time.Minute)
				r, err := sendHTTP1(call, u.listen, post(u.key("main"), "/v1/chat/completions", body))
				done()
				tr.sent.Add(1)
				if err == nil && r.status == http.StatusOK {
					tr.good.Add(1)
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	tr.stop = func() {
		cancel()
		clients.Wait()
	}
	return tr
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// TestKilled kills each kind of process in turn under traffic. `up` starts it again, requests succeed again, and where the
// door lived on, every admission has its one usage record.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"envoy", "worker", "sim", "door"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			u := ownUp(t, "killed-"+role, upOptions{policy: simPolicy(), rates: ratesFile(t), losing: role == "door"})
			tr := startTraffic(u)
			defer tr.stop()
			eventually(t, factPatience, func() error {
				if tr.good.Load() < 8 {
					return fmt.Errorf("%d of %d requests succeeded", tr.good.Load(), tr.sent.Load())
				}
				return nil
			})
			victim := u.the(t, role)
			if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			recovers(t, u, role, victim)
			tr.stop()
			u.idle(t, factPatience)
			if role != "door" {
				u.ledger.settles(t)
			}
		})
	}
}

// recovers wants another process in the victim's place, and then requests that succeed, one after the other.
func recovers(t *testing.T, u *up, role string, victim process) {
	t.Helper()
	before := 3
	if role == "door" || role == "envoy" {
		before = 1
	}
	eventually(t, factPatience, func() error {
		now := u.role(role)
		for _, p := range now {
			if p.pid == victim.pid && p.began == victim.began {
				return fmt.Errorf("%v lives", p)
			}
		}
		if len(now) < before {
			return fmt.Errorf("%d processes %q, %d before", len(now), role, before)
		}
		return nil
	})
	good := 0
	eventually(t, factPatience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r, err := sendHTTP1(ctx, u.listen, post(u.key("main"), "/v1/chat/completions", oneToken))
		if err != nil || r.status != http.StatusOK {
			good = 0
			return fmt.Errorf("%v %v", err, r)
		}
		if good++; good < 20 {
			return fmt.Errorf("only %d in a row", good)
		}
		return nil
	})
	eventually(t, factPatience, func() error {
		if n := len(u.workerAddrs(t, "sim")); n != 3 {
			return fmt.Errorf("Envoy knows %d workers", n)
		}
		return nil
	})
}

// TestWorkerDiesMidStream wants the cut told to the client and journaled, when the shim's process dies.
func TestWorkerDiesMidStream(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "worker-dies", upOptions{policy: simPolicy(), rates: ratesFile(t), workers: 1})
	s := fill(t, u, "main", 1)[0]
	if err := syscall.Kill(u.the(t, "worker").pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.until("[DONE]", 1); err == nil {
		t.Error("the stream came to an orderly end")
	}
	rec := u.ledger.usage(t, s.admission())
	if rec.GetOutcome() != usage.OutcomeUpstreamCut || rec.GetCompletionTokens() < 1 || rec.GetCompletionTokens() >= longTokens {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	u.idle(t, factPatience)
}

// TestEngineDiesMidStream wants an error event from the shim, and an orderly end of the body.
func TestEngineDiesMidStream(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "engine-dies", upOptions{policy: simPolicy(), rates: ratesFile(t), workers: 1})
	s := fill(t, u, "main", 1)[0]
	if err := syscall.Kill(u.the(t, "sim").pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.until(`"upstream_cut"`, 1); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.next(); err != nil {
			if err.Error() != "EOF" {
				t.Errorf("the body does not end in order: %v", err)
			}
			break
		}
	}
	rec := u.ledger.usage(t, s.admission())
	if rec.GetOutcome() != usage.OutcomeUpstreamCut || rec.GetCountedFrom() != usage.CountedEngine || rec.GetCompletionTokens() < 1 {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	served := u.ledger.served(t, s.admission())
	if served.GetOutcome() != usage.OutcomeUpstreamCut || served.GetCompletionTokens() < rec.GetCompletionTokens() {
		t.Errorf("the shim's record is %s", usage.AppendJSON(nil, served))
	}
	u.idle(t, factPatience)
}
