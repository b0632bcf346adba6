// Package spokegate_test guards the shape of the module: which package may import which, and that each says what it is.
package spokegate_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/spokegate/spokegate"

// layers is the order of the packages: each may import those below it, never one above. A package that is missing here
// fails the test, so that its place is decided and not found.
var layers = []string{
	"test",
	"deploy", // tests of what operators are given
	"cmd/spokegate",
	"doctor", // looks at a deployment from outside, over the pages of its processes
	"replay", // traces through the router, over simulated workers
	"extauthz", "extproc", "epp", "worker",
	"worker/kv", // what an engine holds, from its events to pickers; knows no engine's process
	"hub",       // what the policy is made of; hub/api speaks for it
	"hub/store",
	"hub/deploy", // YAML for clusters, from templates
	"xds",
	"envoy",
	"flight",
	"fleet",
	"router",
	"router/blocktree", // what each worker holds of a prompt
	"prompt",
	"prompt/text", // what the engine's tokenizer is given
	"limits",
	"usage/ledger",  // sums what usage has journaled, in a database
	"sqldb",         // SQLite or PostgreSQL
	"usage/balance", // judges what usage has journaled
	"usage",
	"policy",
	"openai",
	"enginemetrics", // what engines say of themselves
	"identity/mtls", // reads files and makes handshakes, which identity itself does not
	"identity/jwks", // reads files and addresses, which identity itself does not
	"identity",
	"wire",
	"sim",
	"api",
}

// services translate between a protocol and the domain. One that imported another would take its decisions again.
var services = []string{"extauthz", "extproc", "epp", "worker", "hub"}

// domain packages decide, and know no server. Their judgement (limits.Decide, say) takes the time as an argument; limits has
// its stores beside it, which are clients of Redis with timers of their own.
var domain = []string{"router", "prompt", "limits", "policy", "openai", "identity"}

type pkg struct {
	ImportPath string
	Doc        string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// layer gives the place of a package of ours, by its longest name in layers.
func layer(importPath string) (name string, depth int, ours bool) {
	rel, ours := strings.CutPrefix(importPath, module+"/")
	if !ours {
		return "", 0, false
	}
	for dir := rel; dir != "."; dir = path.Dir(dir) {
		for i, l := range layers {
			if l == dir {
				return l, i, true
			}
		}
	}
	return "", -1, true
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		from, depth, _ := layer(p.ImportPath)
		if p.ImportPath != module && depth < 0 {
			t.Errorf("%s has no place in the order of the packages", p.ImportPath)
		}
		for _, imp := range p.Imports {
			to, below, ours := layer(imp)
			if !ours || to == from {
				continue
			}
			if below < depth {
				t.Errorf("%s imports %s, which stands above it", p.ImportPath, imp)
			}
			if slices.Contains(services, from) && slices.Contains(services, to) {
				t.Errorf("%s imports %s: services take one decision each and never call another; the caller declares an interface", p.ImportPath, imp)
			}
		}
	}
}

func TestDomainKnowsNoServer(t *testing.T) {
	for _, p := range packages(t) {
		name, _, _ := layer(p.ImportPath)
		if !slices.Contains(domain, name) {
			continue
		}
		for _, imp := range p.Imports {
			if imp == "google.golang.org/grpc" || imp == "net/http" && name != "openai" {
				t.Errorf("%s imports %s: a domain package is usable without a server", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		name, _, _ := layer(p.ImportPath)
		if name == "api" || name == "test" || p.ImportPath == module {
			continue // generated, and tests only
		}
		if len(strings.Fields(p.Doc)) < 4 {
			t.Errorf("%s has no package doc: say what it promises and what not", p.ImportPath)
		}
	}
}
