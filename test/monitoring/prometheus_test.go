//go:build monitoring

package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scraped is one target, with the labels that docs/monitoring.md gives it.
type scraped struct {
	address, path string
	labels        map[string]string
}

func (r *rig) opsOf(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// targets are all roles. The file of the last reconciliation is served as node_exporter's textfile collector would.
func (r *rig) targets(t *testing.T) []scraped {
	door := r.opsOf(t, "run/ops")
	list := []scraped{
		{door, "/metrics", map[string]string{"role": "door", "spoke": "local", "door": "door-1"}},
		{door, "/envoy/metrics", map[string]string{"role": "envoy", "spoke": "local", "door": "door-1"}},
		{r.opsOf(t, "hub/run/ops"), "/metrics", map[string]string{"role": "hub"}},
		{r.opsOf(t, "ledger.ops"), "/metrics", map[string]string{"role": "ledger"}},
		{r.opsOf(t, "reconcile.ops"), "/metrics", map[string]string{"role": "reconcile"}},
	}
	workers, _ := filepath.Glob(filepath.Join(r.dir, "run", "worker-*.ops"))
	for _, w := range workers {
		name := strings.TrimSuffix(filepath.Base(w), ".ops")
		list = append(list, scraped{r.opsOf(t, "run/"+name+".ops"), "/metrics", map[string]string{"role": "worker", "spoke": "local", "worker": name}})
	}
	return list
}

// serveBalance serves what `usage reconcile -metrics` wrote.
func (r *rig) serveBalance(t *testing.T, file string) {
	t.Helper()
	server := &http.Server{Addr: r.reserve(t, "reconcile"), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		http.ServeFile(w, q, file)
	})}
	go func() { _ = server.ListenAndServe() }()
	t.Cleanup(func() { _ = server.Close() })
}

// scrape starts Prometheus on the targets with our rules, and waits until it has read each of them.
func (r *rig) scrape(t *testing.T, targets []scraped) {
	t.Helper()
	rules, err := filepath.Abs(deployed + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []map[string]any
	for i, s := range targets {
		jobs = append(jobs, map[string]any{"job_name": fmt.Sprintf("spokegate-%d", i), "metrics_path": s.path,
			"static_configs": []map[string]any{{"targets": []string{s.address}, "labels": s.labels}}})
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":     map[string]string{"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
		"rule_files": []string{rules}, "scrape_configs": jobs})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	r.prometheus = free(t)
	start(t, r.dir, "prometheus", "prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(r.dir, "tsdb"),
		"--web.listen-address", r.prometheus, "--log.level", "warn")
	eventually(t, func() error {
		got, err := r.query("count(up == 1)")
		if err != nil || len(got) != 1 || got[0].Value[1] != fmt.Sprint(len(targets)) {
			return fmt.Errorf("of %d targets %v are up: %v", len(targets), got, err)
		}
		return nil
	})
}

// sample is one of an instant vector.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// query asks for a vector. A value that is no number is left out: it says as little as none.
func (r *rig) query(expr string) ([]sample, error) {
	var data struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	}
	if err := r.api("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	if data.ResultType != "vector" {
		return nil, fmt.Errorf("it is a %s", data.ResultType)
	}
	var all, known []sample
	if err := json.Unmarshal(data.Result, &all); err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Value[1] != "NaN" {
			known = append(known, s)
		}
	}
	return known, nil
}

func (r *rig) api(path string, to any) error {
	resp, err := r.client.Get("http://" + r.prometheus + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: to}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s %s: %v", answer.Status, answer.Error, err)
	}
	return nil
}
