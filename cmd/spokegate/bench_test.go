package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/replay"
)

// captured is what f prints on stdout.
func captured(t *testing.T, f func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdout
	os.Stdout = w
	out := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		out <- string(b)
	}()
	err = f()
	os.Stdout = was
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return <-out
}

func TestBenchRoute(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	args := []string{"route", "-sessions", "4", "-rate", "0.05,0.1", "-workers", "2"}
	out := captured(t, func() error { return runBench(context.Background(), append(args, "-o", "json", "-svg", dir)) })
	dec := json.NewDecoder(strings.NewReader(out))
	for _, rate := range []float64{0.05, 0.1} {
		var r benchReport
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		var ways []string
		for _, res := range r.Results {
			ways = append(ways, res.Way)
		}
		if want := append(slices.Clone(replay.Ways), replay.BoundName); !slices.Equal(ways, want) || r.Rate < rate/2 || r.Rate > rate*2 || r.Options.Fleet.Workers != 2 {
			t.Errorf("%+v", r)
		}
	}
	plots, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(plots) != 4 {
		t.Fatalf("%v, %v", plots, err)
	}
	for _, p := range plots {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(b, new(struct{})); err != nil || len(b) > 64<<10 || !strings.Contains(string(b), "session-hash") || strings.Contains(string(b), "NaN") {
			t.Errorf("%s: %d bytes, %v", p, len(b), err)
		}
	}

	out = captured(t, func() error { return runBench(context.Background(), args) })
	for _, way := range append(slices.Clone(replay.Ways), replay.BoundName) {
		if n := strings.Count(out, "\n"); n != 24 || strings.Count(out, " "+way+" ") != 2 {
			t.Errorf("%d lines, %s in:\n%s", n, way, out)
		}
	}
}

func TestBenchRouteRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-rate x":              `-rate: "x" is not a number of requests a second`,
		"-rate -1":             `-rate: "-1" is not a number`,
		"-rate ,":              "-rate: none",
		"-o yaml":              `-o: table or json expected, not "yaml"`,
		"-pause -1":            "-pause: want no less than 0",
		"-sessions -1":         "-sessions: want no less than 0",
		"-workers 0":           "-workers: want a number from 1 to 10000",
		"-trace /there/is/not": "open /there/is/not: no such file or directory",
		"-rate 1000":           "generated: 100 sessions give at most",
	} {
		if err := runBench(context.Background(), append([]string{"route"}, strings.Fields(args)...)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	for _, args := range [][]string{{}, {"door"}, {"route", "-nonsense"}, {"route", "a"}} {
		if err := runBench(context.Background(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestBenchFlagsAreDocumented: docs/routing.md has each flag in its table, and no other.
func TestBenchFlagsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| flag of `bench route` |")
	table, _, _ = strings.Cut(table, "\n\n")
	f := flag.NewFlagSet("bench route", 0)
	new(benchFlags).register(f)
	var told, are []string
	for _, m := range regexp.MustCompile("(?m)^\\| `-([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		told = append(told, m[1])
	}
	f.VisitAll(func(f *flag.Flag) { are = append(are, f.Name) })
	if slices.Sort(told); !slices.Equal(told, are) {
		t.Errorf("docs/routing.md tells of %v, but there are %v", told, are)
	}
}
