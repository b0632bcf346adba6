package main

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryFlagIsDocumented: docs/operating.md and docs/epp.md have each flag of a role in that role's table, and no other.
func TestEveryFlagIsDocumented(t *testing.T) {
	var text []byte
	for _, name := range []string{"operating", "epp"} {
		page, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, page...)
	}
	door, up, worker, epp := flag.NewFlagSet("door", 0), flag.NewFlagSet("up", 0), flag.NewFlagSet("worker", 0), flag.NewFlagSet("epp", 0)
	proxy := flag.NewFlagSet("envoy run", 0)
	new(envoyRunFlags).register(proxy)
	new(eppFlags).register(epp)
	new(doorFlags).register(door)
	new(doorFlags).registerGateway(door)
	new(upFlags).register(up)
	new(workerFlags).register(worker)
	for head, want := range map[string]func(name string) bool{
		"| flag of `door` |":            func(name string) bool { return door.Lookup(name) != nil },
		"| flag of `up` alone |":        func(name string) bool { return up.Lookup(name) != nil && door.Lookup(name) == nil },
		"| flag of `envoy run` alone |": func(name string) bool { return proxy.Lookup(name) != nil && door.Lookup(name) == nil },
		"| flag of `worker` |":          func(name string) bool { return worker.Lookup(name) != nil },
		"| flag of `epp` |":             func(name string) bool { return epp.Lookup(name) != nil },
	} {
		_, table, found := strings.Cut(string(text), head)
		if !found {
			t.Errorf("there is no table %q", head)
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		var told []string
		for line := range strings.Lines(table) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			for _, m := range regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(first, -1) {
				told = append(told, m[1])
			}
		}
		for _, fs := range []*flag.FlagSet{door, up, proxy, worker, epp} {
			fs.VisitAll(func(f *flag.Flag) {
				if want(f.Name) && !slices.Contains(told, f.Name) {
					t.Errorf("%s lacks -%s: %s", head, f.Name, f.Usage)
				}
			})
		}
		for _, name := range told {
			if !want(name) {
				t.Errorf("%s has -%s, which is no such flag", head, name)
			}
		}
	}
}
