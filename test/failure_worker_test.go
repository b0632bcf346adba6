package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// TestFailuresOfWorkers breaks what serves.
func TestFailuresOfWorkers(t *testing.T) {
	t.Parallel()
	s := besiege(t, "failing-workers", nil, nil)
	for _, f := range []fault{
		{name: "client leaves before the first byte", breaks: leaveEarly},
		{name: "worker drained", breaks: signals("worker", syscall.SIGTERM)},
		{name: "shim killed", breaks: killsMidStream("worker"), may: []verdict{cutOff}, losesServed: true},
		{name: "engine killed", breaks: killsMidStream("sim"), may: []verdict{told, refused}, losesServed: true},
		{name: "no worker at all", breaks: noWorker, may: []verdict{cutOff, refused}, losesServed: true},
	} {
		s.suffers(t, f)
	}
}

// signals sends a signal to the first process of a role, and waits until another is in its place and serves.
func signals(role string, sig syscall.Signal) func(*testing.T, *siege) {
	return func(t *testing.T, s *siege) {
		u := s.ups[0]
		victim := u.the(t, role)
		if err := syscall.Kill(victim.pid, sig); err != nil {
			t.Fatal(err)
		}
		recovers(t, u, role, victim)
	}
}

// killsMidStream kills the process of a role that serves a long stream. Its client is told, or cut off where nobody is left
// to tell it, and the record says how much was delivered.
func killsMidStream(role string) func(*testing.T, *siege) {
	return func(t *testing.T, s *siege) {
		u := s.ups[0]
		h := fill(t, u, "main", 1)[0]
		victim := u.serving(t, h.admission())
		if role == "worker" {
			victim, _ = readProcess(victim.parent)
		}
		if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		err := h.until(`"upstream_cut"`, 1)
		if wasTold := err == nil; wasTold != (role == "sim") {
			t.Errorf("the stream ended with %v after %q", err, h.read[max(0, len(h.read)-3):])
		}
		rec := u.ledger.usage(t, h.admission())
		if rec.GetOutcome() != usage.OutcomeUpstreamCut || rec.GetCompletionTokens() < 1 || rec.GetCompletionTokens() >= longTokens {
			t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
		}
		recovers(t, u, role, victim)
	}
}

// serving is the engine that works on an admission now.
func (u *up) serving(t *testing.T, admission string) process {
	t.Helper()
	engines := u.role("sim")
	for i, c := range u.simClients(t) {
		resp, err := c.Get("http://sim/sim/requests")
		if err != nil {
			t.Fatal(err)
		}
		var list []account
		err = json.NewDecoder(resp.Body).Decode(&list)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list, func(a account) bool { return a.ID == admission && a.Running }) {
			return engines[i]
		}
	}
	t.Fatalf("no engine works on %s", admission)
	return process{}
}

// leaveEarly lets many clients leave while their requests are still being worked on: an answer in one piece takes minutes to
// its first byte. The engines notice, and the records say so. On a machine that does much else they may all be gone before an
// engine has their requests; then others do the same, with more time.
func leaveEarly(t *testing.T, s *siege) {
	for slow := 1; slow <= 64; slow *= 4 {
		if leftAtWork(t, s, slow) > 0 {
			return
		}
	}
	t.Error("no client left while an engine worked for it")
}

// leftAtWork is of how many an engine had the request. Each waits slow times as long.
func leftAtWork(t *testing.T, s *siege, slow int) (found int) {
	const clients = 30
	u, most := s.ups[0], longTokens
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(slow*(150+10*i))*time.Millisecond)
			defer cancel()
			body := fmt.Sprintf(`{"model":"sim-small","max_tokens":%d,"messages":[{"role":"user","content":"early %d"}]}`, most, i)
			if r, err := protocols[i%2].send(ctx, u.listen, post(u.key("leaver"), "/v1/chat/completions", body)); err == nil {
				t.Errorf("an answer of %d tokens within a moment: %v", most, r)
			}
		})
	}
	all.Wait()
	gone := time.Now()
	eventually(t, journalPatience, func() error {
		entries, accounts := s.entries(t), u.accounts(t)
		found = 0
		for id, e := range entries {
			if len(e.admitted) == 0 || e.admitted[0].GetKey() != "leaver" {
				continue
			}
			switch {
			case len(e.usage) == 1 && e.usage[0].GetOutcome() == usage.OutcomeClientCut:
				found++
			case len(e.usage) == 1 && e.usage[0].GetOutcome() == usage.OutcomeNotServed && len(accounts[id]) == 0: // left during admission
			default:
				return fmt.Errorf("%s is journaled as %v", id, e.usage)
			}
			for _, a := range accounts[id] {
				if a.Running || !a.Cut || a.Generated >= int64(most) {
					return fmt.Errorf("the engine says %+v, %v after the client left", a, time.Since(gone))
				}
			}
		}
		return nil
	})
	return found
}

// noWorker kills all shims while nobody starts them again: requests get 503 in the right form.
func noWorker(t *testing.T, s *siege) {
	u := s.ups[0]
	up := u.cmd.Process
	if err := up.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = up.Signal(syscall.SIGCONT) }()
	for _, p := range u.role("worker") {
		p.kill()
	}
	// Nobody has collected the dead; the door must have noticed by itself.
	refusals := 0
	eventually(t, factPatience, func() error {
		r, err := sendHTTP1(t.Context(), u.listen, post(u.key("main"), "/v1/chat/completions", oneToken))
		if err != nil || r.status != http.StatusServiceUnavailable {
			refusals = 0
			return fmt.Errorf("want 503, got %v %v", err, r)
		}
		if err := checkRefusal(r, "", ""); err != nil {
			t.Fatal(err)
		}
		if refusals++; refusals < 10 {
			return fmt.Errorf("only %d in a row", refusals)
		}
		return nil
	})
	u.knows(t, "sim", 0)
	if err := up.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	u.knows(t, "sim", 3)
	recovers(t, u, "worker", process{})
}
