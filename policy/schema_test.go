package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite examples/policy.schema.json")

const schemaPath = "../examples/policy.schema.json"

func TestSchemaFileIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaPath, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, Schema()) {
		t.Fatal("examples/policy.schema.json is not the schema of the types; go test ./policy -run Schema -update")
	}
}

type schema struct {
	Type                 string
	Description          string
	Pattern              string
	AdditionalProperties json.RawMessage // false, or the schema of values whose keys are the user's own
	Required             []string
	Properties           map[string]*schema
	Items                *schema
}

// TestSchemaAndDecoderAgree asks the real decoder about every object of the schema: each key that the schema has is known,
// and a key that it has not is refused with the schema's keys.
func TestSchemaAndDecoderAgree(t *testing.T) {
	var root schema
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	// where maps an object of the schema to a file that has nothing but that object, with a hole for its members.
	var walk func(s *schema, file, path string)
	objects := 0
	walk = func(s *schema, file, path string) {
		objects++
		if string(s.AdditionalProperties) != "false" {
			t.Errorf("%q: additionalProperties is not false", path)
		}
		names := make([]string, 0, len(s.Properties))
		for name, p := range s.Properties {
			names = append(names, name)
			if p.Description == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			if problems := parseProblems(t, strings.Replace(file, "HOLE", name+": null", 1)); hasText(problems, "unknown key") {
				t.Errorf("%s.%s is in the schema, and the decoder says %v", path, name, problems)
			}
			switch {
			case p.Type == "object" && p.Properties == nil:
				if problems := parseProblems(t, strings.Replace(file, "HOLE", name+": {any: 1}", 1)); !hasText(problems, "want text, not a number") {
					t.Errorf("%s.%s should take any key and demand text; the decoder says %v", path, name, problems)
				}
			case p.Type == "object":
				walk(p, strings.Replace(file, "HOLE", name+": {HOLE}", 1), path+"."+name)
			case p.Type == "array" && p.Items.Type == "object":
				walk(p.Items, strings.Replace(file, "HOLE", name+": [{HOLE}]", 1), path+"."+name)
			}
		}
		problems := parseProblems(t, strings.Replace(file, "HOLE", "no_such: 1", 1))
		i := slices.IndexFunc(problems, func(p Problem) bool { return strings.Contains(p.Text, "unknown key; known here are ") })
		if i < 0 {
			t.Fatalf("%q: a key that is not in the schema gives %v", path, problems)
		}
		known := strings.Split(strings.TrimPrefix(problems[i].Text, "unknown key; known here are "), ", ")
		slices.Sort(known)
		slices.Sort(names)
		if !slices.Equal(known, names) {
			t.Errorf("%q: the decoder knows %v, the schema %v", path, known, names)
		}
	}
	walk(&root, "{HOLE}", "")
	if objects != 20 {
		t.Errorf("walked %d objects of the schema, expected 20", objects)
	}
}

// TestSchemaRequiresWhatTheDecoderRequires takes each required key out of a whole policy.
func TestSchemaRequiresWhatTheDecoderRequires(t *testing.T) {
	for _, tc := range []struct{ line, path string }{
		{"models: [{name: m, endpoint: e, price: {currency: USD, input: 1, output: 2}}, {name: a, targets: [{model: m}]}]", "models"},
		{"endpoints: [{name: e}]", "endpoints"},
		{"name: m, ", "models[0].name"},
		{"endpoint: e, ", "models[m].endpoint"}, // or targets
		{"currency: USD, ", "models[m].price.currency"},
		{"input: 1, ", "models[m].price.input"},
		{", output: 2", "models[m].price.output"},
		{"model: m", "models[a].targets[0].model"},
		{"name: e", "endpoints[0].name"},
		{"name: t, ", "teams[0].name"},
		{"models: [m]", "teams[t].models"},
		{"id: k, ", "keys[0].id"},
		{"team: t, ", "keys[k].team"},
		{"sha256: " + hashA, "keys[k].sha256"},
		{"name: i, ", "issuers[0].name"},
		{"issuer: x, ", "issuers[i].issuer"},
		{"audience: y, ", "issuers[i].audience"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			whole := "models: [{name: m, endpoint: e, price: {currency: USD, input: 1, output: 2}}, {name: a, targets: [{model: m}]}]\nissuers: [{name: i, issuer: x, audience: y, jwks_file: /z}]\nendpoints: [{name: e}]\nteams: [{name: t, models: [m]}]\nkeys: [{id: k, team: t, sha256: " + hashA + "}]\n"
			problems := parseProblems(t, strings.Replace(whole, tc.line, "", 1))
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Path == tc.path && strings.Contains(p.Text, "is missing") }) {
				t.Errorf("got %v", problems)
			}
		})
	}
	required := 0
	for _, typ := range []reflect.Type{
		reflect.TypeFor[File](), reflect.TypeFor[ModelEntry](), reflect.TypeFor[EndpointEntry](), reflect.TypeFor[TeamEntry](),
		reflect.TypeFor[KeyEntry](), reflect.TypeFor[LimitEntry](), reflect.TypeFor[PlatformEntry](), reflect.TypeFor[RoutingEntry](),
		reflect.TypeFor[TargetEntry](), reflect.TypeFor[TokensEntry](), reflect.TypeFor[IssuerEntry](), reflect.TypeFor[PriceEntry](),
	} {
		for i := range typ.NumField() {
			if typ.Field(i).Tag.Get("need") == "yes" {
				required++
			}
		}
	}
	if required != 16 {
		t.Errorf("the types require %d keys; this test takes out 16", required)
	}
}

// TestExampleIsAPolicy parses the example, and checks its values against the schema's patterns.
func TestExampleIsAPolicy(t *testing.T) {
	src, err := os.ReadFile("../examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := Parse("policy.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	levels := map[Level]bool{}
	for _, k := range allKeys(s) {
		for _, m := range s.Models(k) {
			for _, l := range s.Limits(k, m, m.Resolve(0)) {
				levels[l.Level] = true
			}
		}
	}
	if len(levels) != 4 || s.Keys() != 3 || len(s.models) != 4 || len(s.Issuers()) != 1 {
		t.Errorf("levels %v, %d keys, %d models, %d issuers", levels, s.Keys(), len(s.models), len(s.Issuers()))
	}
	if lines := bytes.Count(src, []byte("\n")); lines > 65 {
		t.Errorf("the example has %d lines; it is read in two looks at about sixty", lines)
	}
}

// TestExampleShowsEverything: each key that a policy may have stands in the example, and its comments count.
func TestExampleShowsEverything(t *testing.T) {
	src, err := os.ReadFile("../examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			name := typ.Field(i).Tag.Get("yaml")
			if name != "block_bytes" && !bytes.Contains(src, []byte(name+":")) {
				t.Errorf("%s.%s is not in the example", typ.Name(), name)
			}
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[File]())
}

func TestSchemaPatternsCompile(t *testing.T) {
	for _, form := range []string{idForm, modelForm, patternForm, fieldForm, hashForm, engineForm, claimForm, labelForm, networkForm, microsForm, currencyForm} {
		if _, err := regexp.Compile(form); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(form, "^") || !strings.HasSuffix(form, "$") {
			t.Errorf("%s is not anchored", form)
		}
	}
}

func parseProblems(t *testing.T, yaml string) Problems {
	t.Helper()
	_, err := Parse("p.yaml", []byte(yaml))
	if err == nil {
		return nil
	}
	ps, ok := err.(Problems)
	if !ok || len(ps) == 0 {
		t.Fatalf("%q: error is %T %v", yaml, err, err)
	}
	return ps
}

func hasText(ps Problems, text string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return strings.Contains(p.Text, text) })
}
