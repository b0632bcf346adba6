//go:build kube

package deploy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// toldFlags are the flags of each role, by the tables that are themselves held against the flags.
func toldFlags(t *testing.T) map[string][]string {
	t.Helper()
	told := map[string][]string{}
	for _, page := range []string{"operating", "epp", "hub", "usage", "ledger"} {
		text, err := os.ReadFile("../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)\\| flag of `([a-z ]+)`[^|]*\\|(.*?)\n\n").FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(m[2]) {
				first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
				for _, f := range regexp.MustCompile("`-([a-z-]+)[ `]").FindAllStringSubmatch(first, -1) {
					told[m[1]] = append(told[m[1]], f[1])
				}
			}
		}
	}
	told["envoy run"] = append(told["envoy run"], told["door"]...)
	for _, f := range told["door"] { // its table says that they are as for a door
		if strings.HasPrefix(f, "kafka") {
			told["usage reconcile"] = append(told["usage reconcile"], f)
		}
	}
	told["sim"] = []string{"listen", "model", "ranks", "kv-events", "kv-replay"}
	return told
}

// TestFlagsAreThere: each argument of ours is a flag of its role.
func TestFlagsAreThere(t *testing.T) {
	told := toldFlags(t)
	for _, o := range shapes(t) {
		for _, w := range o.workloads {
			for _, c := range w.containers() {
				if len(c.Command) == 0 { // else an engine's own
					flagsAreThere(t, o.shape+" "+w.name, told, c.Args)
				}
			}
		}
	}
}

func flagsAreThere(t *testing.T, whose string, told map[string][]string, args []string) {
	t.Helper()
	role := strings.Split(strings.Join(args, " "), " -")[0]
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(a, "-") && !slices.Contains(told[role], strings.TrimPrefix(name, "-")) {
			t.Errorf("%s: %s has no flag %s", whose, role, name)
		}
	}
}
