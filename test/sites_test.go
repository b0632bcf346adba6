package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var pickers = []string{"admission", "ext_proc"}

// casesPolicy is the one that the cases are written for: `cheap` is allowed, `dear` exists.
func casesPolicy(endpoints, cheap string) *policyText {
	return newPolicy(`
endpoints: `+endpoints+`
models:
  - {name: cheap, endpoint: `+cheap+`}
  - {name: dear, endpoint: `+cheap+`}
teams:
  - {name: t1, models: [cheap]}
`, map[string]string{"main": "team: t1", "old": "team: t1, revoked: true", "late": "team: t1, expires: 2020-01-01T00:00:00Z"})
}

// attached is an installation before the scripted engine, u.engine.
func attached(t testing.TB, picker string) *up {
	return lab.use(t, "attached-"+picker, func() upOptions {
		return upOptions{policy: casesPolicy("[{name: pool}]", "pool"), picker: picker, engine: startEngine("cheap", "dear")}
	})
}

// tapped is an installation in which the tests themselves, u.tap, are the worker for `cheap` and `dear`.
func tapped(t testing.TB, picker string) *up {
	return lab.use(t, "tapped-"+picker, func() upOptions {
		beside := func(u *up) (err error) {
			if u.tap, err = joinTap(u, "tap", "tap", nil); err == nil {
				u.closer = append(u.closer, u.tap.leave)
			}
			return err
		}
		// The simulated worker goes to the first endpoint.
		return upOptions{policy: casesPolicy("[{name: aside}, {name: tap}]", "tap"), picker: picker, workers: 1, beside: beside}
	})
}

// simPolicy has a key for each test that fills a limit.
func simPolicy() *policyText {
	keys := map[string]string{
		"main":       "team: t1",
		"small-only": "team: t1, models: [sim-small]",
		"old":        "team: t1, revoked: true",
		"late":       "team: t1, expires: 2020-01-01T00:00:00Z",
		"rated":      "team: t1, limits: [{requests_per_second: 0.2, burst: 3}]",
		"rated-go":   "team: t1, limits: [{requests_per_second: 0.1, burst: 1}]",
		"rated-py":   "team: t1, limits: [{requests_per_second: 0.1, burst: 1}]",
		"slots":      "team: t1, limits: [{concurrency: 3}]",
		"cut":        fmt.Sprintf("team: t1, limits: [{concurrency: %d}]", cutPlaces()),
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
  - {name: small, models: [sim-small], limits: [{requests_per_second: 0.1, burst: 2}]}
`, keys)
}

// fastRates keep a request of forty tokens under a sixth of a second.
const fastRates = `{"prefill_tokens_per_second": 2000000, "decode_tokens_per_second": 300, "decode_slowdown": 0, "overhead_ms": 1}`

func ratesFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(lab.temp, "rates.json")
	if err := os.WriteFile(path, []byte(fastRates), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
