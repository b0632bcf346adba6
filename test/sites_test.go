package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var pickers = []string{"admission", "ext_proc"}

// casesPolicy is the one that the cases are written for: `cheap` is allowed, `dear` exists. The alias `nick` stands for one
// of two models, whose key may ask for neither; and there are keys with quotas of tokens.
func casesPolicy(endpoints, cheap string) *policyText {
	keys := map[string]string{"main": "team: t1", "old": "team: t1, revoked: true", "late": "team: t1, expires: 2020-01-01T00:00:00Z",
		"nick": "team: nicks", "tiny": fmt.Sprintf("team: t1, limits: [{tokens_per_minute: %d}]", outputMost+1),
		"agent": fmt.Sprintf("team: t1, limits: [{tokens_per_day: %d}]", agentTokens),
		"hasty": fmt.Sprintf("team: t1, limits: [{tokens_per_minute: %d}]", agentTokens)}
	return newPolicy(`
endpoints: `+endpoints+`
models:
  - {name: cheap, endpoint: `+cheap+`}
  - {name: dear, endpoint: `+cheap+`}
  - {name: lora, endpoint: `+cheap+`, engine_name: base/lora-1}
  - {name: nick, targets: [{model: cheap, weight: 3}, {model: lora}]}
teams:
  - {name: t1, models: [cheap]}
  - {name: nicks, models: [nick]}
`, keys)
}

// oneProxy lets each case come from an address of its own: who sends wrong keys again and again from one is slowed.
var oneProxy = []string{"-trusted-hops", "1"}

// attached is an installation before the scripted engine, u.engine.
func attached(t testing.TB, picker string) *up {
	return lab.use(t, "attached-"+picker, func() upOptions {
		return upOptions{policy: casesPolicy("[{name: pool}]", "pool"), picker: picker, engine: startEngine("cheap", "dear"), more: oneProxy}
	})
}

// tapped is an installation in which the tests themselves, u.tap, are the worker for `cheap` and `dear`.
func tapped(t testing.TB, picker string) *up {
	return lab.use(t, "tapped-"+picker, func() upOptions {
		return tapOptions(picker, func(u *up) (err error) {
			u.tap, err = joinTap(u, "tap", "tap", nil)
			return err
		})
	})
}

// tapOptions moves the models to an endpoint of the tests' own once the installation is ready: `up` gives a simulated
// worker to each endpoint that it finds when it starts.
func tapOptions(picker string, join func(u *up) error) upOptions {
	after := func(u *up) error {
		if err := join(u); err != nil {
			return err
		}
		u.policy.setHead(casesPolicy("[{name: aside}, {name: tap}]", "tap").head)
		if err := u.write(u.policy.yaml()); err != nil {
			return err
		}
		return within(startPatience, func() error {
			if err := u.serves("tap"); err != nil {
				return err
			}
			// Envoy's threads learn of a new endpoint a moment after it has acknowledged it.
			ctx, cancel := context.WithTimeout(context.Background(), callPatience)
			defer cancel()
			_, err := finished(sendHTTP1(ctx, u.listen, post(u.key("main"), "/v1/chat/completions", `{"model":"cheap","messages":[]}`, field{caseHeader, casePrefix + "first"})))
			return err
		})
	}
	return upOptions{policy: casesPolicy("[{name: aside}]", "aside"), picker: picker, workers: 1, more: oneProxy, after: after}
}

// seldom is a rate that gives nothing back while a test runs, on whatever machine: one request in three hours.
const seldom = "requests_per_second: 0.0001"

// simPolicy has a key for each test that fills a limit.
func simPolicy() *policyText {
	keys := map[string]string{
		"main":       "team: t1",
		"small-only": "team: t1, models: [sim-small]",
		"old":        "team: t1, revoked: true",
		"late":       "team: t1, expires: 2020-01-01T00:00:00Z",
		"rated":      "team: t1, limits: [{" + seldom + ", burst: 3}]",
		"refilled":   "team: t1, limits: [{requests_per_second: 0.2, burst: 1}]",
		"rated-go":   "team: t1, limits: [{" + seldom + ", burst: 1}]",
		"rated-py":   "team: t1, limits: [{" + seldom + ", burst: 1}]",
		"slots":      "team: t1, limits: [{concurrency: 3}]",
		"cut":        fmt.Sprintf("team: t1, limits: [{concurrency: %d}]", cutPlaces()),
		"inside":     "team: t1, networks: [10.0.0.0/8]",
		"thrifty":    "team: t1, limits: [{requests_per_day: 2, requests_per_month: 50}]",
		"cutter":     "team: t1, limits: [{concurrency: 1, tokens_per_day: 100000}]",
		"curious":    "team: counted, limits: [{" + seldom + ", burst: 5, concurrency: 2, tokens_per_month: 5000}, {model: sim-large, requests_per_day: 7}]",
		"team-a":     "team: small",
		"team-b":     "team: small",
	}
	return newPolicy(`
endpoints: [{name: sim}]
models:
  - {name: sim-small, endpoint: sim}
  - {name: sim-large, endpoint: sim}
  - {name: other, endpoint: sim}
teams:
  - {name: t1, models: ["sim-*"]}
  - {name: small, models: [sim-small], limits: [{`+seldom+`, burst: 2}]}
  - {name: counted, models: ["sim-*"], limits: [{tokens_per_day: 9000}]}
`, keys)
}

// fastRates keep a request of forty tokens under a sixth of a second.
const fastRates = `{"prefill_tokens_per_second": 2000000, "decode_tokens_per_second": 300, "decode_slowdown": 0, "overhead_ms": 1}`

func ratesFile(t testing.TB) string {
	t.Helper()
	lab.rates.Do(func() { // others may be reading it
		if err := os.WriteFile(filepath.Join(lab.temp, "rates.json"), []byte(fastRates), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return filepath.Join(lab.temp, "rates.json")
}

// simulated is an installation with three simulated workers.
func simulated(t testing.TB, picker string) *up {
	return lab.use(t, "sim-"+picker, func() upOptions {
		return upOptions{policy: simPolicy(), picker: picker, rates: ratesFile(t)}
	})
}

// eachPicker runs a test with both.
func eachPicker(t *testing.T, test func(t *testing.T, picker string)) {
	for _, p := range pickers {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}
