//go:build kube

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asked lists all that a chart has a default for: the path of its keys, and the default. Kubernetes' own objects are told of as one.
func asked(path []string, defaults map[string]any, tell func(path []string, def any)) {
	for _, k := range slices.Sorted(maps.Keys(defaults)) {
		at := append(slices.Clone(path), k)
		tell(at, defaults[k])
		if inner, is := defaults[k].(map[string]any); is && !whole(strings.Join(at, ".")) {
			asked(at, inner, tell)
		}
	}
}

// empty defaults are no text, no list and no map.
func empty(def any) bool {
	switch def := def.(type) {
	case string:
		return def == ""
	case []any:
		return len(def) == 0
	case map[string]any:
		return len(def) == 0
	}
	return false
}

// laid is a file of values that has each of these paths with what value makes for it.
func laid(t *testing.T, paths [][]string, value func(path []string) any) string {
	t.Helper()
	values := map[string]any{}
	for _, path := range paths {
		in := values
		for _, k := range path[:len(path)-1] {
			if in[k] == nil {
				in[k] = map[string]any{}
			}
			in = in[k].(map[string]any)
		}
		in[path[len(path)-1]] = value(path)
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func none([]string) any { return nil }

// TestNullIsRefusedOrEmpty: null takes a default away. Where that is nothing, it stays nothing; elsewhere it is refused by its path,
// before a template meets it.
func TestNullIsRefusedOrEmpty(t *testing.T) {
	for _, chart := range []string{"spoke", "hub"} {
		values := map[string]any{}
		readYAML(t, "helm/spokegate-"+chart+"/values.yaml", &values)
		var nothing [][]string
		needed := map[int][][]string{} // by depth, for what is in an object that is null is not told of
		asked(nil, values, func(path []string, def any) {
			if path[len(path)-1] == "replicas" {
				return // TestReplicasAreLeftToAutoscalers
			}
			if empty(def) {
				nothing = append(nothing, path)
			} else {
				needed[len(path)] = append(needed[len(path)], path)
			}
		})
		for _, paths := range needed {
			out, err := helm(t, "spokegate-"+chart, "--values", laid(t, paths, none))
			for _, path := range paths {
				at := regexp.QuoteMeta(slashed(path[:len(path)-1]))
				if err == nil || !regexp.MustCompile("at '"+at+"': missing propert(y|ies) .*'"+path[len(path)-1]+"'").MatchString(out) {
					t.Errorf("%s: %s may be null: %v", chart, strings.Join(path, "."), err)
				}
			}
			if strings.Contains(out, "executing") {
				t.Errorf("%s: a template met a null:\n%.600s", chart, out)
			}
		}
		nulls := laid(t, nothing, none)
		for _, dir := range []string{"shapes", "testdata"} {
			files, err := filepath.Glob(dir + "/" + chart + "-*.yaml")
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				want, err := helm(t, "spokegate-"+chart, "--values", f)
				if err != nil {
					t.Fatalf("%s: %s", f, want)
				}
				if got, err := helm(t, "spokegate-"+chart, "--values", nulls, "--values", f); err != nil || got != want {
					t.Errorf("%s with null where nothing is the default: %v\n%.600s", f, err, got)
				}
			}
		}
	}
}

// TestWrongTypesAreRefused, each by its path.
func TestWrongTypesAreRefused(t *testing.T) {
	for _, chart := range []string{"spoke", "hub"} {
		values := map[string]any{}
		readYAML(t, "helm/spokegate-"+chart+"/values.yaml", &values)
		all, defaults := map[int][][]string{}, map[string]any{}
		asked(nil, values, func(path []string, def any) {
			depth := 0 // what holds nothing that is asked for itself
			if inner, is := def.(map[string]any); is && len(inner) > 0 && !whole(strings.Join(path, ".")) {
				depth = len(path)
			}
			all[depth], defaults[slashed(path)] = append(all[depth], path), def
		})
		for _, paths := range all {
			out, err := helm(t, "spokegate-"+chart, "--values", laid(t, paths, func(path []string) any {
				switch defaults[slashed(path)].(type) {
				case []any, map[string]any:
					return "text"
				}
				return []any{"item"}
			}))
			for _, path := range paths {
				if err == nil || !strings.Contains(out, fmt.Sprintf("at '%s': got ", slashed(path))) {
					t.Errorf("%s: %s may be of any type: %v", chart, strings.Join(path, "."), err)
				}
			}
		}
	}
}

// TestReplicasAreLeftToAutoscalers where they are null: of one kind of pod, or of all that do not say it for themselves.
func TestReplicasAreLeftToAutoscalers(t *testing.T) {
	for _, c := range []struct {
		chart, file, set string
		want             []string
	}{
		{"spoke", "testdata/spoke-1.yaml", "doors.replicas=null", []string{"6", "9"}},
		{"spoke", "testdata/spoke-1.yaml", "workers[0].replicas=null", []string{"6", "7"}},
		{"spoke", "testdata/spoke-1.yaml", "pickers[0].replicas=null", []string{"7", "9"}},
		{"spoke", "testdata/spoke-1.yaml", "workerDefaults.replicas=null,pickerDefaults.replicas=null", []string{"6", "7", "9"}},
		{"spoke", "testdata/spoke-2.yaml", "workerDefaults.replicas=null,workers[1].replicas=0", []string{"0", "2"}},
		{"spoke", "testdata/spoke-3.yaml", "workerDefaults.replicas=null,pickerDefaults.replicas=null", nil},
		{"hub", "testdata/hub-1.yaml", "replicas=null", nil},
	} {
		out, err := helm(t, "spokegate-"+c.chart, "--values", c.file, "--set", c.set)
		if err != nil {
			t.Errorf("%s with %s: %s", c.file, c.set, out)
		}
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^  replicas:(.*)$`).FindAllStringSubmatch(out, -1) {
			got = append(got, strings.TrimSpace(m[1]))
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s with %s has replicas %q, want %q", c.file, c.set, got, c.want)
		}
		read(t, c.chart+"-", []byte(out))
	}
}

func slashed(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return "/" + strings.Join(path, "/")
}
