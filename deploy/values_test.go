//go:build kube

package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoValueIsDead: testdata has each value of a chart somewhere, and what it says is found in what is rendered from it, which
// Kubernetes' types read strictly.
func TestNoValueIsDead(t *testing.T) {
	for _, chart := range []string{"spoke", "hub"} {
		files, err := filepath.Glob("testdata/" + chart + "-*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", chart, err)
		}
		used := map[string]bool{}
		for _, f := range files {
			out, err := helm(t, "spokegate-"+chart, "--values", f)
			if err != nil {
				t.Errorf("%s: %v\n%.600s", f, err, out)
				continue
			}
			read(t, chart+"-", []byte(out))
			var given any
			readYAML(t, f, &given)
			scalars("", given, func(path, text string) {
				path = strings.NewReplacer("workers[]", "workerDefaults", "pickers[]", "pickerDefaults", "[]", "").Replace(path)
				used[path] = true
				if text != "true" && text != "false" && text != "0" && !strings.Contains(out, text) && !derived(path) {
					t.Errorf("%s: %s: %s is nowhere in what is rendered", f, path, text)
				}
			})
		}
		values := map[string]any{}
		readYAML(t, "helm/spokegate-"+chart+"/values.yaml", &values)
		want := map[string]string{}
		leaves("", values, want)
		for path := range want {
			found := path == "workers" || path == "pickers"
			for u := range used {
				found = found || u == path || strings.HasPrefix(u, path+".")
			}
			if !found {
				t.Errorf("%s: no file of testdata says %s", chart, path)
			}
		}
	}
}

// derived are values that only others made of them are rendered of, or that a spoke without doors leaves out.
func derived(path string) bool {
	return slices.Contains([]string{"workerDefaults.engine.startSeconds", "hub.tls.secretName", "policy.configMap"}, path)
}

// scalars tells all of a value, with [] for items of lists.
func scalars(path string, v any, tell func(path, text string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			scalars(strings.TrimPrefix(path+"."+k, "."), e, tell)
		}
	case []any:
		for _, e := range v {
			scalars(path+"[]", e, tell)
		}
	default:
		into := map[string]string{}
		leaves("x", v, into)
		tell(path, into["x"])
	}
}
