package test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spokegate/spokegate/limits/limitstest"
)

// TestFailuresOfDoor breaks what decides and what moves bytes, but does not kill the door's process.
func TestFailuresOfDoor(t *testing.T) {
	t.Parallel()
	s := besiege(t, "failing-door", nil, nil)
	for _, f := range []fault{
		{name: "bad policy", breaks: badPolicy},
		{name: "door hung", breaks: hungDoor, may: []verdict{refused}},
		{name: "envoy killed", breaks: signals("envoy", syscall.SIGKILL), may: []verdict{cutOff}},
	} {
		s.suffers(t, f)
	}
}

// TestFailuresOfDoorProcess breaks the meter, and then kills the door's process: requests are refused until it is back, and
// running streams go on. Its records may be lost, and what was served stands in for them. What it held in Redis expires.
func TestFailuresOfDoorProcess(t *testing.T) {
	t.Parallel()
	var gate *meterGate
	s := besiege(t, "killed-door", func(o *upOptions) { o.losing = true }, func(u *up) (err error) {
		gate, err = gateMeter(u)
		return err
	}, "SPOKEGATE_REDIS="+limitstest.StartRedis(t).URL())
	t.Cleanup(gate.close)
	s.suffers(t, fault{name: "meter hung and cut off", breaks: gate.breaks})
	s.suffers(t, fault{name: "door killed", breaks: killDoor, may: []verdict{refused}, losesUsage: true})
}

// badPolicy breaks the file, empties it, and mends it. Nobody notices but who looks.
func badPolicy(t *testing.T, s *siege) {
	u := s.ups[0]
	good := u.policy.yaml()
	u.rewrite(t, strings.ReplaceAll(good, "team: t1", "team: nobody"))
	u.opsSays(t, "/readyz", "nobody")
	u.rewrite(t, "")
	u.opsSays(t, "/readyz", "empty")
	u.rewrite(t, good+"# mended\n")
	eventually(t, factPatience, func() error {
		if page := u.page(t, "/readyz"); strings.Contains(page, "refused") {
			return errors.New(page)
		}
		return nil
	})
}

// hungDoor stops the door's process for three seconds, in which requests are refused, and lets it go on.
func hungDoor(t *testing.T, s *siege) {
	u := s.ups[0]
	door := u.the(t, "door")
	door.freeze(t)
	thaw := func() { _ = syscall.Kill(door.pid, syscall.SIGCONT) }
	defer thaw()
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		r := u.do(t, post(u.key("main"), "/v1/chat/completions", oneToken))
		wantRefusal(t, r, "", http.StatusServiceUnavailable, "unavailable")
	}
	thaw()
	served := 0
	eventually(t, factPatience, func() error {
		r, err := sendHTTP1(t.Context(), u.listen, post(u.key("main"), "/v1/chat/completions", oneToken))
		if err != nil || r.status != http.StatusOK {
			served = 0
			return fmt.Errorf("%v %v", err, r)
		}
		if served++; served < 20 {
			return fmt.Errorf("only %d in a row", served)
		}
		return nil
	})
}

// killDoor kills the door's process while a stream runs that outlives it by far: three seconds, or longer where a slow machine
// is too late.
func killDoor(t *testing.T, s *siege) {
	for tokens := int64(900); !killedUnder(t, s, tokens); tokens *= 4 {
		if tokens > 20_000 {
			t.Fatal("the usage of each stream is journaled, though the door was killed while it ran")
		}
	}
}

// killedUnder kills the door's process under a stream, which goes on to its end; its usage is known from the shim. False: the
// stream's usage is journaled, for it had ended before.
func killedUnder(t *testing.T, s *siege, tokens int64) bool {
	u := s.ups[0]
	running, err := u.openStream(t.Context(), post(u.key("main"), "/v1/chat/completions",
		fmt.Sprintf(`{"model":"sim-small","max_tokens":%d,"stream":true,"messages":[{"role":"user","content":"outlive it"}]}`, tokens)))
	if err != nil {
		t.Fatal(err)
	}
	defer running.cut()
	if err := running.until("data:", 3); err != nil {
		t.Fatal(err)
	}
	u.ledger.await(t, running.admission(), "admitted", func(e entry) bool { return len(e.admitted) == 1 })
	signals("door", syscall.SIGKILL)(t, s)
	if err := running.until("[DONE]", 1); err != nil {
		t.Errorf("the running stream suffered: %v", err)
	}
	served := u.ledger.served(t, running.admission())
	e := u.ledger.get(running.admission())
	if len(e.admitted) != 1 || served.GetCompletionTokens() != tokens {
		t.Errorf("want it admitted, %d tokens served and its usage lost, got %+v", tokens, e)
	}
	return len(e.usage) == 0
}
