package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEveryValueIsDocumented: docs/kubernetes.md has each value of a chart with its default, and no other, and the chart's schema
// knows the same.
func TestEveryValueIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{"spokegate-spoke", "spokegate-hub"} {
		_, table, found := strings.Cut(string(page), "\n## Values of "+chart+"\n")
		if !found {
			t.Fatalf("no values of %s", chart)
		}
		table, _, _ = strings.Cut(table, "\n## ")
		told := map[string]string{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| (.*?) ?\\| ").FindAllStringSubmatch(table, -1) {
			told[m[1]] = strings.Trim(m[2], "`")
		}
		values := map[string]any{}
		readYAML(t, "helm/"+chart+"/values.yaml", &values)
		want := map[string]string{}
		leaves("", values, want)
		for path, def := range want {
			got, there := told[path]
			if !there || got != def {
				t.Errorf("%s: %s is told with the default %q (there: %v), want %q", chart, path, got, there, def)
			}
		}
		for path := range told {
			if _, there := want[path]; !there {
				t.Errorf("%s: %s is told, and no value", chart, path)
			}
		}
		schema := map[string]any{}
		readYAML(t, "helm/"+chart+"/values.schema.json", &schema)
		known := map[string]bool{}
		properties("", schema, schema["$defs"].(map[string]any), known)
		for path := range known { // an item of a list has what the defaults have, and a name
			if _, there := want[path]; !there && path != "global" && !strings.HasPrefix(path, "workers.") && !strings.HasPrefix(path, "pickers.") {
				t.Errorf("%s: the schema has %s, and values.yaml has not", chart, path)
			}
		}
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// whole are values that are Kubernetes' own objects, told of as one.
func whole(path string) bool {
	return regexp.MustCompile(`(^|\.|[a-z])[rR]esources$`).MatchString(path)
}

func leaves(path string, v any, into map[string]string) {
	switch m := v.(type) {
	case map[string]any:
		if whole(path) && len(m) > 0 {
			into[path] = "requests and limits"
			return
		}
		if len(m) == 0 {
			into[path] = ""
			return
		}
		for k, v := range m {
			leaves(strings.TrimPrefix(path+"."+k, "."), v, into)
		}
	case []any:
		into[path] = inline(v)
	case float64: // all numbers of YAML come as such
		into[path] = strconv.FormatFloat(m, 'f', -1, 64)
	default:
		into[path] = fmt.Sprint(v)
	}
}

// inline is YAML on one line, as values.yaml has it.
func inline(v any) string {
	switch v := v.(type) {
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, inline(e))
		}
		if len(parts) == 0 {
			return ""
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+": "+inline(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	text, _ := json.Marshal(v)
	return strings.Trim(string(text), `"`)
}

// properties collects the paths that a schema knows, down to what values.yaml tells as one.
func properties(path string, schema, defs map[string]any, into map[string]bool) {
	if ref, is := schema["$ref"].(string); is {
		name := strings.TrimPrefix(ref, "#/$defs/")
		if slices.Contains([]string{"issuerRef", "resources", "peers", "rules"}, name) {
			into[path] = true
			return
		}
		schema = defs[name].(map[string]any)
	}
	inner, is := schema["properties"].(map[string]any)
	if !is {
		into[path] = true
		return
	}
	for k, v := range inner {
		properties(strings.TrimPrefix(path+"."+k, "."), v.(map[string]any), defs, into)
	}
}
