package test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// catalogued is one row of docs/metrics.md.
type catalogued struct {
	kind   string
	labels []string
	at     string // door, worker, both, ledger, epp, hub, reconcile
	when   string // always, happened, redis, kafka, hub, pool
}

var inCode = regexp.MustCompile("`([a-z_]+)`")

func catalogue(t *testing.T) map[string]catalogued {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(lab.root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]catalogued{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) < 8 || !inCode.MatchString(cells[1]) {
			continue
		}
		name := inCode.FindStringSubmatch(cells[1])[1]
		if _, twice := out[name]; twice {
			t.Errorf("%s is in the catalogue twice", name)
		}
		c := catalogued{kind: strings.TrimSpace(cells[2]), at: strings.TrimSpace(cells[4]), when: strings.TrimSpace(cells[5])}
		for _, l := range inCode.FindAllStringSubmatch(cells[3], -1) {
			c.labels = append(c.labels, l[1])
		}
		slices.Sort(c.labels)
		if !slices.Contains([]string{"door", "worker", "both", "ledger", "epp", "hub", "reconcile"}, c.at) || !slices.Contains([]string{"always", "happened", "redis", "kafka", "hub", "pool"}, c.when) {
			t.Errorf("%s: at %q, when %q", name, c.at, c.when)
		}
		out[name] = c
	}
	return out
}

// exposed is what one page of metrics holds, Go's and the process's own apart.
type exposed struct {
	kind   string
	labels []string
}

var labelForm = regexp.MustCompile(`([a-zA-Z_]+)="(?:[^"\\]|\\.)*"`)

func expose(page string) map[string]exposed {
	out := map[string]exposed{}
	var name string
	for line := range strings.Lines(page) {
		f := strings.Fields(line)
		switch {
		case len(f) == 4 && f[0] == "#" && f[1] == "TYPE":
			name = f[2]
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				name = ""
				continue
			}
			out[name] = exposed{kind: f[3]}
		case name != "" && !strings.HasPrefix(line, "#"):
			var labels []string
			for _, l := range labelForm.FindAllStringSubmatch(line, -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			slices.Sort(labels)
			out[name] = exposed{out[name].kind, labels}
		}
	}
	return out
}

// workerPages are the ops addresses of the workers.
func (u *up) workerPages(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(u.dir, "run", "*.ops"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no worker says where its pages are: %v", err)
	}
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(data)))
	}
	return out
}

// TestCatalogue holds the catalogue against what is exposed, both ways.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	u := simulated(t, pickers[0])
	for _, stream := range []bool{false, true} {
		body := operations[0].body
		if stream {
			body = streamed(body)
		}
		r := u.ok(t, post(u.key("main"), operations[0].path, body))
		u.ledger.usage(t, r.admission())
		u.ledger.served(t, r.admission())
	}
	// One that the shim refuses, since it does not come through the door.
	for _, w := range u.workerAddrs(t, "sim") {
		sendTo(t, w, post("none", operations[0].path, operations[0].body))
	}
	want := catalogue(t)
	pages := u.workerPages(t)
	eventually(t, factPatience, func() error {
		door, worker := expose(u.page(t, "/metrics")), map[string]exposed{}
		for _, p := range pages {
			maps.Copy(worker, expose(fetchPage(t, p, "/metrics")))
		}
		return firstOf(compare(want, "door", door), compare(want, "worker", worker))
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func compare(want map[string]catalogued, role string, got map[string]exposed) error {
	for name, g := range got {
		w, ok := want[name]
		switch {
		case !ok:
			return fmt.Errorf("the %s exposes %s, which is not in the catalogue", role, name)
		case w.at != role && w.at != "both":
			return fmt.Errorf("the %s exposes %s, which is catalogued for the %s", role, name, w.at)
		case w.kind != g.kind || !slices.Equal(w.labels, g.labels):
			return fmt.Errorf("%s is a %s by %q, and catalogued as a %s by %q", name, g.kind, g.labels, w.kind, w.labels)
		}
	}
	for name, w := range want {
		if _, ok := got[name]; !ok && w.when == "always" && (w.at == role || w.at == "both") {
			return fmt.Errorf("%s is catalogued, and the %s does not expose it", name, role)
		}
	}
	return nil
}

var metricInCode = regexp.MustCompile(`(?:Name:\s+|NewDesc\(|histogram\(|counter\()"((?:spokegate|gen_ai)_[a-z0-9_]+)"`)

// TestCatalogueIsWhole holds the catalogue against the code, both ways: also what only Redis, Kafka or bad luck bring about.
func TestCatalogueIsWhole(t *testing.T) {
	t.Parallel()
	inSource := map[string]string{}
	err := filepath.WalkDir(lab.root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != lab.root || e.Name() == "test" || e.Name() == "sim"):
			return filepath.SkipDir // the simulator's are an engine's
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		for _, m := range metricInCode.FindAllStringSubmatch(string(data), -1) {
			inSource[m[1]] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := catalogue(t)
	for name, path := range inSource {
		if _, ok := want[name]; !ok {
			t.Errorf("%s (%s) is not in docs/metrics.md", name, path)
		}
	}
	for name := range want {
		if inSource[name] == "" {
			t.Errorf("%s is in docs/metrics.md, and not in the code", name)
		}
	}
}

// TestWorkerSaysWhy asks a worker's pages.
func TestWorkerSaysWhy(t *testing.T) {
	t.Parallel()
	u := simulated(t, pickers[0])
	for _, p := range u.workerPages(t) {
		if page := fetchPage(t, p, "/healthz"); !strings.HasPrefix(page, "ok") {
			t.Errorf("/healthz: %s", page)
		}
		eventually(t, factPatience, func() error {
			page := fetchPage(t, p, "/readyz")
			if !strings.Contains(page, "ok   engine sim: ready") || !strings.Contains(page, "ok   doors: joined to door-1") {
				return fmt.Errorf("/readyz: %s", page)
			}
			return nil
		})
	}
}
