package main

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestChartTakesWhatFlagsTake: where the chart's schema has a pattern for what becomes a flag, it lets through what the flag takes,
// and refuses what would end the pod at its start.
func TestChartTakesWhatFlagsTake(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/spokegate-spoke/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	door := func(args ...string) func(string) error {
		return func(value string) error {
			var d doorFlags
			f := flag.NewFlagSet("door", flag.ContinueOnError)
			f.SetOutput(new(strings.Builder))
			d.register(f)
			all := append([]string{"-dir", t.TempDir()}, args...)
			all[len(all)-1] += value
			if err := f.Parse(all); err != nil {
				return err
			}
			return d.complete()
		}
	}
	picker := func(endpoint string) error {
		return (&eppFlags{endpoint: endpoint, workers: "file", bodyLimit: 1}).complete()
	}
	hub := []string{"-hub=hub.example.com:9701", "-hub-cert=c", "-hub-key=k", "-hub-ca=a"}
	durations := []string{"", "0", "0s", "-1s", "1", "1 s", "9ms", "10ms", "99ms", "150ms", "999ms", "1000ms", "1999ms", "2000ms", "2001ms", "9999ms", "10000ms", "0.009s", "0.01s", "0.2s",
		"0.25s", "1s", "1.5s", "1.999s", "2s", "3s", "20s", "59s", "60s", "90s", "1m", "1m30s", "90m", "1h", "24h", "1h1m1s", "720h", "5m5", "h", "1d"}
	for path, c := range map[string]struct {
		takes  func(string) error
		values []string
		not    []string // that the flag takes, and the chart has no need of
	}{
		"redis timeout":           {door("-redis-timeout="), durations, nil},
		"hub maxAge":              {door(append(hub, "-policy-max-age=")...), durations, []string{"0", "0s"}},
		"doors gpus":              {door(append(hub, "-gpus=")...), []string{"H100=8", "H100=8/2", "H100=8,L40S=4/4", "H100", "H100=", "=8", "H100=8,", "H100=8/", "H100=-1", "H100=99999999999"}, nil},
		"kafka brokers":           {door("-kafka="), []string{"", "a:9092", "a:9092,b.c:9093", "a", "a:", "a:0", ":9092", "a:9092,", ",a:9092"}, nil},
		"pickerDefaults endpoint": {picker, []string{"large", "Qwen.2_5@v1-x", "a/b", ".a", "-a", "a b", strings.Repeat("a", 63), strings.Repeat("a", 64)}, nil},
	} {
		at := schema
		for _, k := range strings.Fields(path) {
			at = at["properties"].(map[string]any)[k].(map[string]any)
		}
		pattern := regexp.MustCompile(at["pattern"].(string))
		for _, value := range c.values {
			err := c.takes(value)
			if value == "" && path == "hub maxAge" {
				err = nil // no flag is made of it
			}
			if chart := pattern.MatchString(value); chart != (err == nil) && !slices.Contains(c.not, value) {
				t.Errorf("%s: %q: the chart takes it: %v, the flag: %v", path, value, chart, err)
			}
		}
	}
}
