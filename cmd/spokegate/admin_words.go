package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// limitNames are the members of a limit in the order in which people read them, and the flags that set them.
var limitNames = []struct{ member, flag, short, help string }{
	{"requests_per_second", "requests-per-second", "/s", "requests a second, sustained; 0.5 is one every two seconds"},
	{"burst", "burst", " burst", "how many may come at once"},
	{"concurrency", "concurrency", " at once", "requests in flight at one time"},
	{"tokens_per_minute", "tokens-per-minute", " tokens/min", "tokens in a minute"},
	{"requests_per_day", "requests-per-day", "/day", "requests in a day"},
	{"tokens_per_day", "tokens-per-day", " tokens/day", "tokens in a day"},
	{"requests_per_month", "requests-per-month", "/month", "requests in a month"},
	{"tokens_per_month", "tokens-per-month", " tokens/month", "tokens in a month"},
}

// limitWords are limits on one line: 50/s, 100 burst; large: 64 at once.
func limitWords(v any) string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		l, _ := x.(map[string]any)
		var parts []string
		for _, n := range limitNames {
			if value, is := l[n.member]; is {
				parts = append(parts, brief(value)+n.short)
			}
		}
		text := strings.Join(parts, ", ")
		if model := word(l["model"]); model != "" {
			text = model + ": " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// targetWords are an alias's targets: large×9 small.
func targetWords(v any) string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		t, _ := x.(map[string]any)
		text := word(t["model"])
		if w, is := t["weight"]; is {
			text += "×" + brief(w)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func labelWords(v any) string {
	labels, _ := v.(map[string]any)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, name+"="+brief(labels[name]))
	}
	return strings.Join(out, " ")
}

func teamFlags(f *flag.FlagSet) func(string) map[string]any {
	models := f.String("models", "", "what its keys may use: `names`, or beginnings with a final *, comma-separated, in quotes")
	return func(name string) map[string]any { return map[string]any{"name": name, "models": listed(*models)} }
}

func modelFlags(f *flag.FlagSet) func(string) map[string]any {
	endpoint := f.String("endpoint", "", "the `endpoint` that serves it")
	engine := f.String("engine-name", "", "what the engine calls it, where that is another `name`")
	return func(name string) map[string]any {
		return given(map[string]any{"name": name, "endpoint": *endpoint, "engine_name": *engine})
	}
}

func endpointFlags(f *flag.FlagSet) func(string) map[string]any {
	spoke := f.String("spoke", "", "the `spoke` that it runs in; empty: the hub places it")
	return func(name string) map[string]any { return given(map[string]any{"name": name, "spoke": *spoke}) }
}

func spokeFlags(f *flag.FlagSet) func(string) map[string]any {
	labels := pairs{}
	f.Var(labels, "label", "`NAME=VALUE` that placement looks at; may be given several times")
	return func(name string) map[string]any {
		body := map[string]any{"name": name}
		if len(labels) > 0 {
			body["labels"] = labels
		}
		return body
	}
}

// given leaves out what nobody said.
func given(body map[string]any) map[string]any {
	maps.DeleteFunc(body, func(_ string, v any) bool { return v == "" })
	return body
}

// readFile reads a file, or standard input for -.
func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	}
	return data, nil
}
