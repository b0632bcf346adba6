package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// TestHungDoor stops the door's process for a while: running streams go on, new requests get an error in the right form,
// and when the door is back, everything works and nothing is held.
func TestHungDoor(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := ownUp(t, "hung-door-"+picker, upOptions{policy: simPolicy(), picker: picker, rates: ratesFile(t), workers: 1})
		s, err := u.openStream(t.Context(), post(u.key("main"), "/v1/chat/completions",
			`{"model":"sim-small","max_tokens":1200,"stream":true,"messages":[{"role":"user","content":"go on"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		defer s.cut()
		if err := s.until("data:", 3); err != nil {
			t.Fatal(err)
		}
		door := u.the(t, "door")
		door.freeze(t)
		defer func() { _ = syscall.Kill(door.pid, syscall.SIGCONT) }()
		r := u.do(t, post(u.key("main"), "/v1/chat/completions", oneToken))
		wantRefusal(t, r, "", http.StatusServiceUnavailable, "unavailable")
		if err := s.until("[DONE]", 1); err != nil {
			t.Errorf("the running stream suffered: %v", err)
		}
		if err := syscall.Kill(door.pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		eventually(t, factPatience, func() error {
			if r := u.do(t, post(u.key("main"), "/v1/chat/completions", oneToken)); r.status != http.StatusOK {
				return fmt.Errorf("still %v", r)
			}
			return nil
		})
		u.idle(t, factPatience)
		rec := u.ledger.usage(t, s.admission())
		if rec.GetOutcome() == usage.OutcomeNotServed || rec.CompletionTokens == nil {
			t.Errorf("the usage record of the stream is %s", usage.AppendJSON(nil, rec))
		}
	})
}

// TestHungWorker stops one worker's shim: it is taken out, and requests go to the others.
func TestHungWorker(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "hung-worker", upOptions{policy: simPolicy(), rates: ratesFile(t)})
	u.knows(t, "sim", 3)
	worker := u.the(t, "worker")
	worker.freeze(t)
	defer func() { _ = syscall.Kill(worker.pid, syscall.SIGCONT) }()
	u.knows(t, "sim", 2)
	for range 6 {
		u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken))
	}
	if err := syscall.Kill(worker.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	u.knows(t, "sim", 3)
}

// TestSlowReader takes a stream that is large and reads none of it: what is held for it is bounded, and the engine waits.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		const most = 64 << 20
		sent := make(chan int64, 1)
		big := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\""+strings.Repeat("x", 1000)+"\"}}]}\n\n", 64)
		u := ownUp(t, "slow-reader-"+picker, upOptions{policy: casesPolicy("[{name: pool}]", "pool"), picker: picker, engine: startEngine("cheap", "dear")})
		u.engine.answers(casePrefix+"slow", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			var n int64
			for n < 8*most && r.Context().Err() == nil {
				k, err := io.WriteString(w, big)
				if n += int64(k); err != nil {
					break
				}
			}
			sent <- n
		})
		before := map[string]int64{}
		for _, role := range []string{"envoy", "worker", "door"} {
			before[role] = u.the(t, role).memory(t)
		}
		s, err := u.openStream(context.WithoutCancel(t.Context()), post(u.key("main"), "/v1/chat/completions", `{"model":"cheap","stream":true,"messages":[]}`, field{caseHeader, casePrefix + "slow"}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.cut()
		select {
		case n := <-sent:
			t.Errorf("the engine could send %d MiB to a client that does not read", n>>20)
		case <-time.After(2 * time.Second): // in which an unbounded buffer would fill by far
		}
		for role, was := range before {
			if grown := u.the(t, role).memory(t) - was; grown > most {
				t.Errorf("%s grew by %d MiB", role, grown>>20)
			}
		}
		s.cut()
		rec := u.ledger.usage(t, s.admission())
		if rec.GetOutcome() != usage.OutcomeClientCut || rec.GetCompletionTokens() == 0 {
			t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
		}
		u.idle(t, factPatience)
	})
}

// TestDrain ends everything while a stream runs: the stream comes to its own end first.
func TestDrain(t *testing.T) {
	t.Parallel()
	patient := []string{"-drain", "1m"} // a slow machine may need it all for the stream of a second
	u := prepared(t, "drain", func(o *upOptions) { o.rates, o.more = ratesFile(t), patient })
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	if err := u.awaitReady(); err != nil {
		t.Fatalf("%v\n%s", err, u.report())
	}
	u.ledger = newLedger(u.dir + "/spool")
	s, err := u.openStream(t.Context(), post(u.key("main"), "/v1/chat/completions",
		`{"model":"sim-small","max_tokens":450,"stream":true,"messages":[{"role":"user","content":"go on"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer s.cut()
	if err := s.until("data:", 3); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- u.stop() }()
	if err := s.until("[DONE]", 1); err != nil {
		t.Errorf("the stream did not end by itself: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	rec := u.ledger.get(s.admission()).usage
	if len(rec) != 1 || rec[0].GetOutcome() != usage.OutcomeComplete || rec[0].GetCompletionTokens() != 450 {
		t.Errorf("the usage record is %v", rec)
	}
}
