package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

func upWith(t *testing.T, args ...string) (upFlags, error) {
	t.Helper()
	var u upFlags
	f := flag.NewFlagSet("up", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	u.register(f)
	err := f.Parse(args)
	if err == nil {
		u.door.dir = t.TempDir()
		err = u.door.complete()
	}
	return u, err
}

// TestWorkersBeforeEngines: every attached engine has a shim for each endpoint, and no engine is left out.
func TestWorkersBeforeEngines(t *testing.T) {
	u, err := upWith(t, "-attach", "http://e1", "-attach=http://e2")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range (&site{endpoints: []string{"large", "small"}}).workers(u) {
		endpoint, attach := c.argv[slices.Index(c.argv, "-endpoint")+1], c.argv[slices.Index(c.argv, "-attach")+1]
		got = append(got, fmt.Sprint(c.name, " ", endpoint, " ", attach))
	}
	want := []string{"worker-1 large http://e1", "worker-2 small http://e1", "worker-3 large http://e2", "worker-4 small http://e2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestThePolicyOfAttachedEngines names what all of them serve, and nothing where they differ.
func TestThePolicyOfAttachedEngines(t *testing.T) {
	engine := func(models string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, models) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	first, second := engine(`{"data":[{"id":"b"},{"id":"a"}]}`), engine(`{"data":[{"id":"a"},{"id":"b"}]}`)
	s := &site{dir: t.TempDir()}
	s.policy, s.demoKey = filepath.Join(s.dir, "policy.yaml"), filepath.Join(s.dir, "demo.key")
	other := engine(`{"data":[{"id":"c"}]}`)
	if err := s.ensureDemo(context.Background(), []string{first, other}); err == nil || !strings.Contains(err.Error(), other) {
		t.Errorf("engines with different models: %v", err)
	}
	if err := s.ensureDemo(context.Background(), []string{first, second}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.policy)
	if err != nil {
		t.Fatal(err)
	}
	if set, err := policy.Parse("p", text); err != nil || !slices.Equal(modelNames(set), []string{"a", "b"}) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestDoorFlagsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "",
		"-envoy-threads=2":         "",
		"-envoy-threads=-1":        "concurrency",
		"-trusted-hops=2":          "",
		"-trusted-hops=-1":         "trusted hops",
		"-trusted-hops=99":         "trusted hops",
		"-rotate-key=0":            "",
		"-rotate-key=1h":           "",
		"-rotate-key=1s":           "-rotate-key",
		"-picker=none":             "-picker",
		"-redis=http://x":          "-redis",
		"-redis=redis://h:1/0?x=y": "-redis",
		"-redis=redis://a:1,b:2":   "",
		"-redis=redis://a:1,b:2/3": "-redis",
	} {
		u, err := upWith(t, strings.Fields(args)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
		if args == "-trusted-hops=2" && u.door.envoy.TrustedHops != 2 || args == "-envoy-threads=2" && u.door.envoy.Concurrency != 2 {
			t.Errorf("%s: %+v", args, u.door.envoy)
		}
	}
}

// TestShareCores: each process gets half of what there is, at least one core, and what the environment says stands.
func TestShareCores(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, c := range []struct {
		cores      int
		said, want string
	}{{1, "", "1"}, {2, "", "1"}, {3, "", "1"}, {8, "", "4"}, {8, "7", "7"}} {
		t.Setenv("GOMAXPROCS", c.said)
		runtime.GOMAXPROCS(c.cores)
		if err := shareCores(); err != nil || os.Getenv("GOMAXPROCS") != c.want {
			t.Errorf("%d cores, %q in the environment: %q, %v; want %q", c.cores, c.said, os.Getenv("GOMAXPROCS"), err, c.want)
		}
	}
}
