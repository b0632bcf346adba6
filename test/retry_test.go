package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/usage"
)

// TestNextWorker lets the first worker fail in each way that it may before the first byte: the next one serves, the
// client notices nothing, and the record says so. When all fail, it is 503.
func TestNextWorker(t *testing.T) {
	t.Parallel()
	ways := map[string]failing{
		"draining": {usage.OutcomeNotServed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Spokegate-Refused", "draining")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"message":"draining","type":"server_error","code":"unavailable"}}`)
		}},
		"reset": {usage.OutcomeUpstreamCut, func(w http.ResponseWriter, _ *http.Request) { reset(w) }},
	}
	eachPicker(t, func(t *testing.T, picker string) {
		for name, fails := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				nextWorker(t, picker, fails)
			})
		}
	})
}

// failing is a worker that fails before the first byte, and how a request ends that has no other.
type failing struct {
	outcome string
	answer  http.HandlerFunc
}

func nextWorker(t *testing.T, picker string, fails failing) {
	var good, bad *tap
	u := ownUp(t, "next-worker-"+picker, tapOptions(picker, func(u *up) (err error) {
		if bad, err = joinTap(u, "bad", "tap", fails.answer); err == nil {
			good, err = joinTap(u, "good", "tap", nil)
		}
		return err
	}))
	u.knows(t, "tap", 2)
	retried := 0
	for i := 0; i < 6 || retried == 0 && i < 60; i++ { // the picker begins with the one or the other
		label := fmt.Sprintf("case/next-%d", i)
		r := u.ok(t, post(u.key("main"), "/v1/chat/completions",
			fmt.Sprintf(`{"model":"cheap","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat(label, 50)), field{caseHeader, label}))
		rec := u.ledger.usage(t, r.admission())
		attempts := 1 + len(bad.got(label))
		retried += attempts - 1
		if rec.GetOutcome() != usage.OutcomeComplete || rec.GetWorker() != good.addr || int(rec.GetAttempt()) != attempts || rec.GetCompletionTokens() != 3 {
			t.Errorf("after %d attempts, served by %s, the usage record is %s", attempts, good.addr, usage.AppendJSON(nil, rec))
		}
		if h := once(t, "good worker", good.got(label)).header.Get("X-Envoy-Attempt-Count"); h != fmt.Sprint(attempts) {
			t.Errorf("the worker was told attempt %s, and it was %d", h, attempts)
		}
	}
	if retried == 0 {
		t.Error("the failing worker was never asked: the test proves nothing")
	}
	good.leave()
	u.knows(t, "tap", 1)
	r := u.do(t, post(u.key("main"), "/v1/chat/completions", `{"model":"cheap","messages":[]}`, field{caseHeader, "case/none"}))
	wantRefusal(t, r, "", http.StatusServiceUnavailable, "")
	if rec := u.ledger.usage(t, r.admission()); rec.GetOutcome() != fails.outcome || rec.GetCompletionTokens() != 0 {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	bad.leave()
	u.knows(t, "tap", 0)
	r = u.do(t, post(u.key("main"), "/v1/messages", `{"model":"cheap","max_tokens":1,"messages":[]}`, field{caseHeader, "case/nobody"}))
	wantRefusal(t, r, "/v1/messages", http.StatusServiceUnavailable, "")
	if rec := u.ledger.usage(t, r.admission()); rec.GetOutcome() != usage.OutcomeNotServed {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	u.idle(t, journalPatience)
}

// knows waits until Envoy has n workers for an endpoint.
func (u *up) knows(t testing.TB, endpoint string, n int) {
	t.Helper()
	eventually(t, startPatience, func() error {
		if got := u.workerAddrs(t, endpoint); len(got) != n {
			return fmt.Errorf("Envoy knows %v", got)
		}
		return nil
	})
}
