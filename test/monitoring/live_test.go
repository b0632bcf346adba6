//go:build monitoring

package monitoring

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayBeEmpty are metrics (or other words of a query) that have no series on this system, each with its reason. A query with one of
// them may return nothing.
var mayBeEmpty = map[string]string{
	"spokegate_tokens_overshoot_total":                "no estimate was too low",
	"spokegate_flight_unsettled_total":                "each request was counted",
	"spokegate_flight_anomalies_total":                "nothing odd happened",
	"spokegate_credentials_slowed_total":              "fewer than ten wrong keys a minute",
	"spokegate_picker_degraded":                       "all workers are indexed",
	"spokegate_pick_splits_total":                     "there are no workers that prefill",
	"spokegate_picker_refused_total":                  "the picker is asked by our own door",
	"spokegate_scrape_requests_total":                 "all workers have shims",
	"spokegate_envoy_nacks_total":                     "Envoy takes its configuration",
	"spokegate_certificate_expires_timestamp_seconds": "all is on one machine, without certificates",
	"spokegate_issuer_last_success_timestamp_seconds": "the policy has no issuer",
	"spokegate_hub_api_refused_tokens_total":          "a vector without labels has it; nobody guessed",
	"and spokegate_usage_spool_lag_bytes":             "Kafka has taken all",
	`decision=~"unavailable`:                          "no admission failed",
	`result="failed"`:                                 "each probe is answered",
	`state="draining"} == 1`:                          "no worker drains",
	"spokegate_balance_problems) > 0":                 "it balances",
	"spokegate_worker_degraded{":                      "no worker is slow",
}

func excused(expr string) bool {
	for name := range mayBeEmpty {
		if strings.Contains(expr, name) {
			return true
		}
	}
	return false
}

// asked is one query of a panel, with all variables filled in.
type asked struct {
	where, expr, legend string
}

var byVariable = strings.NewReplacer("$__rate_interval", "3m", "$spoke", ".*", "$door", ".*", "$worker", ".*")

func queries(t *testing.T) (all []asked) {
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all = append(all, asked{name + ": " + p.Title, byVariable.Replace(q.Expr), q.LegendFormat})
			}
		}
	}
	return all
}

// TestLive runs every query and every rule against a Prometheus that scrapes a spoke with traffic, errors, limits and a kill.
func TestLive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.traffic(t)
	balance := filepath.Join(r.dir, "balance.prom")
	eventually(t, func() error { // once records are in Kafka; what is found of them amid traffic is not the point
		said := r.command(t, -1, "usage", "reconcile", "-kafka", r.kafka, "-publish=false", "-metrics", balance)
		if _, err := os.Stat(balance); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	r.serveBalance(t, balance)
	r.scrape(t, r.targets(t))
	r.command(t, 0, "limit", "set", "key/demo-key", "-tokens-per-minute", "900000") // one more revision, which is pushed
	r.killEngine(t)

	t.Run("names", func(t *testing.T) { r.checkNames(t) })
	t.Run("queries", func(t *testing.T) { r.checkQueries(t) })
	t.Run("rules", func(t *testing.T) { r.checkRules(t) })
	t.Run("runbooks", func(t *testing.T) { r.checkCommands(t) })
	t.Run("faults", func(t *testing.T) { r.checkFaults(t) })
}

// checkFaults wants what goes wrong here seen by the alert that is for it: pending, for it must last before it fires.
func (r *rig) checkFaults(t *testing.T) {
	_, port, _ := net.SplitHostPort(r.redis)
	if out, err := exec.Command("redis-cli", "-p", port, "shutdown", "nosave").CombinedOutput(); err != nil {
		t.Fatalf("redis-cli: %v\n%s", err, out)
	}
	eventually(t, func() error {
		got, err := r.query(`ALERTS{alertname="SpokegateLimitsFallback", door="door-1", spoke="local", severity="warning"}`)
		if err != nil || len(got) != 1 {
			return fmt.Errorf("Redis is away, and the alert on it is %v, %v", got, err)
		}
		return nil
	})
}

// checkQueries asks all at once again and again until each has data: a rate wants two scrapes and traffic between them.
func (r *rig) checkQueries(t *testing.T) {
	left := queries(t)
	t.Logf("queries: %d", len(left))
	eventually(t, func() (last error) {
		left = slices.DeleteFunc(left, func(q asked) bool {
			got, err := r.query(q.expr)
			switch {
			case err != nil:
				t.Fatalf("%s: %v\n%s", q.where, err, q.expr)
			case len(got) == 0 && !excused(q.expr):
				last = errors.Join(last, fmt.Errorf("%s: no data, and it is not said why: %s", q.where, q.expr))
				return false
			}
			checkLegend(t, q, got)
			return true
		})
		return last
	})
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// checkLegend wants the labels that a legend names in what was answered, or at least asked for.
func checkLegend(t *testing.T, q asked, got []sample) {
	t.Helper()
	for _, m := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
		found := len(got) == 0 && regexp.MustCompile(`by \([^)]*\b`+m[1]+`\b`).MatchString(q.expr)
		for _, s := range got {
			found = found || s.Metric[m[1]] != ""
		}
		if !found && !(m[1] == "door" || m[1] == "worker") { // a series is of a door or of a worker
			t.Errorf("%s: nothing has the label %s: %s", q.where, m[1], q.expr)
		}
	}
}

// checkRules wants each rule evaluated without an error, and each expression answered.
func (r *rig) checkRules(t *testing.T) {
	eventually(t, func() error {
		var data struct {
			Groups []struct {
				Name  string
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := r.api("/api/v1/rules", &data); err != nil {
			return err
		}
		n := 0
		for _, g := range data.Groups {
			for _, rule := range g.Rules {
				if n++; rule.Health != "ok" {
					return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		if want := len(rules(t)); n != want {
			return fmt.Errorf("%d rules are loaded, and there are %d", n, want)
		}
		return nil
	})
	for _, rule := range rules(t) {
		if _, err := r.query(rule.Expr); err != nil {
			t.Errorf("%s%s: %v", rule.Alert, rule.Record, err)
		}
	}
	for _, healthy := range []string{"SpokegateDoorDown", "SpokegateNoDoors", "SpokegateEnvoyAway", "SpokegateUsageLost", "SpokegatePolicyRefused", "SpokegateHubErrors", "SpokegateLimitsFallback"} {
		if got, err := r.query(`ALERTS{alertstate="firing", alertname="` + healthy + `"}`); err != nil || len(got) > 0 {
			t.Errorf("%s fires on a healthy system: %v, %v", healthy, got, err)
		}
	}
}

// notAMetric is what is left of an expression beside names of metrics.
var (
	insides  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|#.*`)
	matchers = regexp.MustCompile(`\{[^{}]*\}|\[[^\]]*\]|\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)`)
	name     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*(?:\s*\()?`)
	keywords = []string{"or", "and", "unless", "by", "on", "offset", "bool", "inf", "m", "h"}
)

// checkNames wants each metric that is asked for in the catalogue, among those that Envoy has, or recorded by a rule.
func (r *rig) checkNames(t *testing.T) {
	known := map[string]bool{"up": true, "process_cpu_seconds_total": true, "kube_job_status_failed": true}
	data, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+)").FindAllStringSubmatch(string(data), -1) {
		if known[m[1]] = true; m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_count"], known[m[1]+"_sum"] = true, true, true
		}
	}
	var names []string
	if err := r.api("/api/v1/label/__name__/values", &names); err != nil {
		t.Fatal(err)
	}
	envoys := 0
	for _, n := range names {
		if strings.HasPrefix(n, "envoy_") {
			known[n] = true
			envoys++
		}
	}
	if envoys < 100 {
		t.Errorf("Envoy has %d metrics", envoys)
	}
	all := queries(t)
	for _, rule := range rules(t) {
		known[rule.Record] = true
		all = append(all, asked{rule.Alert + rule.Record, rule.Expr, ""})
	}
	seen := map[string]bool{}
	for _, q := range all {
		bare := matchers.ReplaceAllString(insides.ReplaceAllString(q.expr, ""), " ")
		for _, n := range name.FindAllString(bare, -1) {
			if strings.HasSuffix(n, "(") || slices.Contains(keywords, n) {
				continue
			}
			if seen[n] = true; !known[n] {
				t.Errorf("%s asks for %s, which is neither in docs/metrics.md nor Envoy's", q.where, n)
			}
		}
	}
	for words := range mayBeEmpty {
		if !slices.ContainsFunc(all, func(q asked) bool { return strings.Contains(q.expr, words) }) {
			t.Errorf("%s may be empty, and nobody asks for it", words)
		}
	}
	t.Logf("metrics: %d", len(slices.Collect(maps.Keys(seen))))
}

var (
	ourCommand = regexp.MustCompile("`spokegate ([^`]+)`")
	flagWord   = regexp.MustCompile(`(?:^|[\s\[])-([a-z][a-z-]*)`)
)

// checkCommands wants each command of the runbooks, and each of its flags, known to the binary.
func (r *rig) checkCommands(t *testing.T) {
	n := 0
	for alert, text := range runbooks(t) {
		for _, m := range ourCommand.FindAllStringSubmatch(text, -1) {
			var words []string
			for _, w := range strings.Fields(m[1]) {
				if strings.HasPrefix(w, "-") || w != strings.ToLower(w) || strings.ContainsAny(w, "…/") {
					break
				}
				words = append(words, w)
			}
			help := r.command(t, 0, append(words, "-h")...)
			for _, f := range flagWord.FindAllStringSubmatch(m[1], -1) {
				if !regexp.MustCompile(`(?m)^\s+-` + f[1] + `\b`).MatchString(help) {
					t.Errorf("%s: `spokegate %s`: there is no -%s:\n%s", alert, m[1], f[1], help)
				}
			}
			n++
		}
	}
	t.Logf("commands: %d", n)
}

// TestPromtool checks the rules, and runs their tests.
func TestPromtool(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = deployed
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
