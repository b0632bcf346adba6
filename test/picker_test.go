package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// slowRates prefill 400 bytes a second, so that a long prompt stands for a busy worker for as long as it is let.
const slowRates = `{"prefill_tokens_per_second": 100, "decode_tokens_per_second": 300, "decode_slowdown": 0, "overhead_ms": 1}`

const (
	pickerHead = `
endpoints: [{name: sim, routing: {affinity_weight: 4%s}}]
models: [{name: sim-small, endpoint: sim}]
teams: [{name: t1, models: ["sim-*"]}]
`
	explainHeader = "X-Spokegate-Explain"
)

// TestPickerOptions, on one installation of two workers: choices are explained to whoever may ask, sessions stay where they were,
// and a fleet that is busy refuses until it is not.
func TestPickerOptions(t *testing.T) {
	t.Parallel()
	lab.needEnvoy(t)
	rates := filepath.Join(t.TempDir(), "rates.json")
	if err := os.WriteFile(rates, []byte(slowRates), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := newPolicy(fmt.Sprintf(pickerHead, ""), map[string]string{"main": "team: t1", "curious": "team: t1, explain: true", "last": "team: t1, sheddable: true"})
	u, err := startUp("picker", upOptions{policy: policy, workers: 2, rates: rates})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	}()
	u.opsSays(t, "/readyz", "of 2 of 2 it is known exactly what they hold")
	t.Run("explained", func(t *testing.T) { choicesAreExplained(t, u) })
	t.Run("sessions", func(t *testing.T) { sessionsStay(t, u) })
	t.Run("commands", func(t *testing.T) { pickerCommands(t, u) })
	t.Run("busy", func(t *testing.T) { busyFleet(t, u) })
}

// brief is a request that is soon answered.
func (u *up) brief(key, text string, more ...field) call {
	body, _ := json.Marshal(map[string]any{"model": "sim-small", "max_tokens": 2, "messages": []any{map[string]string{"role": "user", "content": text}}})
	return post(u.key(key), "/v1/chat/completions", string(body), more...)
}

func choicesAreExplained(t *testing.T, u *up) {
	ask := field{"x-spokegate-explain", "1"}
	for _, c := range []struct {
		call call
		told bool
	}{
		{u.brief("curious", "a plan nobody knows", ask), true},
		{post(u.key("curious"), "/v1/chat/completions", `{"model":"sim-small","max_tokens":2,"stream":true,"messages":[{"role":"user","content":"a plan nobody knows"}]}`, ask), true},
		{u.brief("curious", "a plan nobody knows"), false},
		{u.brief("curious", "a plan nobody knows", field{"x-spokegate-explain", "0"}), false},
		{u.brief("main", "a plan nobody knows", ask), false},
	} {
		why := u.ok(t, c.call).header.Get(explainHeader)
		if (why != "") != c.told || strings.Contains(why, "nobody knows") {
			t.Errorf("%s: %q", c.call.body, why)
		}
		if c.told && (strings.Count(why, ": overlap ") != 2 || strings.Count(why, "(chosen)") != 1 || !strings.Contains(why, "announced")) {
			t.Errorf("%q", why)
		}
	}
}

// sessionsStay: requests that share nothing take turns, and with one session go where the first went.
func sessionsStay(t *testing.T, u *up) {
	workers := func(n int, more ...field) map[string]bool {
		seen := map[string]bool{}
		for i := range n {
			seen[u.ledger.usage(t, u.ok(t, u.brief("main", fmt.Sprint(i, " of ", time.Now().UnixNano()), more...)).admission()).Worker] = true
		}
		return seen
	}
	if seen := workers(4); len(seen) != 2 {
		t.Errorf("without a session: %v", seen)
	}
	if seen := workers(6, field{"x-session-id", "conversation-7"}); len(seen) != 1 {
		t.Errorf("with one: %v", seen)
	}
}

// pickerCommands ask the running door, and change nothing.
func pickerCommands(t *testing.T, u *up) {
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, u.brief("main", "a plan nobody knows").body, 0o600); err != nil {
		t.Fatal(err)
	}
	before := u.metric(t, "spokegate_picks_total")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"epp", "explain", "-ops", u.ops, "-file", body}, []string{"model sim-small, endpoint sim; the prompt's text: rendered", "(chosen)"}},
		{[]string{"epp", "status", "-ops", u.ops}, []string{"endpoint sim: picks: ", "never busy", "indexed"}},
		{[]string{"epp", "status", "-ops", u.ops, "-o", "json"}, []string{`"index":"indexed"`, `"last_check":{`, `"cache_used":`}},
	} {
		out, err := u.command(c.args...)
		for _, w := range c.want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("%v: no %q in %s, %v", c.args, w, out, err)
			}
		}
		if strings.Contains(out, "nobody knows") {
			t.Errorf("%v tells the prompt: %s", c.args, out)
		}
	}
	if n := u.metric(t, "spokegate_picks_total"); n != before {
		t.Errorf("%v picks were counted", n-before)
	}
}

// busyFleet: a threshold that is set while both workers are at work makes the door refuse; it serves again by itself when they are
// not, and nothing of what was refused is left.
func busyFleet(t *testing.T, u *up) {
	u.idle(t, startPatience)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var gone sync.WaitGroup
	defer gone.Wait()
	for i := range 2 {
		long := u.brief("main", fmt.Sprint(i, strings.Repeat(" a very long prompt", 16000)))
		gone.Go(func() {
			if s, err := u.openStream(ctx, long); err == nil {
				s.cut()
			}
		})
		eventually(t, startPatience, func() error {
			if n := u.metric(t, "spokegate_flights_open"); n != float64(i+1) {
				return fmt.Errorf("%v requests are at work", n)
			}
			return nil
		})
	}
	u.policy.setHead(fmt.Sprintf(pickerHead, ", busy: {queue: 1}"))
	if err := u.write(u.policy.yaml()); err != nil {
		t.Fatal(err)
	}
	u.opsSays(t, "/epp", `"queue":1}`)
	for key, want := range map[string]struct {
		status int
		code   string
	}{"curious": {503, "overloaded"}, "last": {429, "shed"}} {
		r := u.do(t, u.brief(key, "one more", field{"x-spokegate-explain", "1"}))
		var said struct{ Error struct{ Code string } }
		if err := json.Unmarshal(r.body, &said); err != nil || r.status != want.status || said.Error.Code != want.code || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", key, r)
		}
		if why := r.header.Get(explainHeader); (strings.Count(why, "busy: queue 1 of 1") == 2) != (key == "curious") {
			t.Errorf("%s: %q", key, why)
		}
		if rec := u.ledger.usage(t, r.admission()); rec.Outcome != usage.OutcomeNotServed {
			t.Errorf("%s: outcome %s", key, rec.Outcome)
		}
	}
	eventually(t, startPatience, func() error { // a record comes before its flight is closed
		if n := u.metric(t, "spokegate_flights_open"); n != 2 {
			return fmt.Errorf("%v requests hold something", n)
		}
		return nil
	})
	leave()
	eventually(t, startPatience, func() error {
		if r := u.do(t, u.brief("last", "one more")); r.status != 200 {
			return fmt.Errorf("still %v", r)
		}
		return nil
	})
	u.idle(t, startPatience)
}

// command runs the binary, and gives what it prints.
func (u *up) command(args ...string) (string, error) {
	out, err := exec.Command(lab.binary, args...).CombinedOutput()
	return string(out), err
}
