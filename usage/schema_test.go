package usage

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

var update = flag.Bool("update", false, "rewrite api/usage/v1/record.schema.json")

const (
	schemaPath = "../api/usage/v1/record.schema.json"
	protoPath  = "../api/usage/v1/usage.proto"
)

// The published schema is that of the protobuf, word for word. What was published only grows: a member that is gone or has
// another type needs another number in DataSchema, and a file of its own.
func TestSchemaIsCurrent(t *testing.T) {
	text, err := os.ReadFile(protoPath)
	if err != nil {
		t.Fatal(err)
	}
	want := recordSchema(string(text))
	got, err := os.ReadFile(schemaPath)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if *update {
		if why := breaks(got, want); why != "" {
			t.Fatalf("who reads by the published schema could not read this: %s", why)
		}
		if err := os.WriteFile(schemaPath, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not the schema of %s: go generate ./usage", schemaPath, protoPath)
	}
}

// members is an object whose order stays.
type members []struct {
	name  string
	value any
}

func (m *members) add(name string, value any) {
	*m = append(*m, struct {
		name  string
		value any
	}{name, value})
}

func (m members) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, e := range m {
		if i > 0 {
			out = append(out, ',')
		}
		b := new(bytes.Buffer)
		in := json.NewEncoder(b)
		in.SetEscapeHTML(false)
		if err := in.Encode(e.value); err != nil {
			return nil, err
		}
		out = append(append(appendString(out, e.name), ':'), bytes.TrimSpace(b.Bytes())...)
	}
	return append(out, '}'), nil
}

// recordSchema makes the schema of the JSON form of a record, with the comments of the proto.
func recordSchema(proto string) []byte {
	var m members
	m.add("$schema", "https://json-schema.org/draft/2020-12/schema")
	m.add("$id", DataSchema)
	m.add("title", "Usage record")
	m.add("description", comment(proto, "message Record {")+" A member that is absent is of an older version, and is to be read as null, 0 or empty; one that is unknown is of a newer version, and is to be passed over.")
	m.add("type", "object")
	m.add("required", []string{"id", "kind", "source", "epoch", "sequence"}) // what a record needs to be counted once
	m.add("properties", properties((&usagev1.Record{}).ProtoReflect().Descriptor(), proto))
	b, err := m.MarshalJSON()
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		panic(err)
	}
	return append(out.Bytes(), '\n')
}

func properties(d protoreflect.MessageDescriptor, proto string) members {
	_, body, _ := strings.Cut(proto, "message "+string(d.Name())+" {")
	var m members
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		var p members
		if text := comment(body, fmt.Sprintf(" %s = %d;", f.Name(), f.Number())); text != "" {
			p.add("description", text)
		}
		value(&p, f, proto)
		m.add(string(f.Name()), p)
	}
	return m
}

// value adds what a field's value may be.
func value(p *members, f protoreflect.FieldDescriptor, proto string) {
	orNull := func(kind string) any {
		if f.HasPresence() {
			return []string{kind, "null"}
		}
		return kind
	}
	switch {
	case f.IsMap():
		p.add("type", "object")
		p.add("additionalProperties", map[string]string{"type": "string"})
	case f.IsList():
		p.add("type", "array")
		p.add("items", map[string]string{"type": "string"})
	case f.Kind() == protoreflect.MessageKind && f.Message().FullName() == "google.protobuf.Timestamp":
		p.add("type", orNull("string"))
		p.add("format", "date-time")
	case f.Kind() == protoreflect.MessageKind:
		p.add("type", orNull("object"))
		p.add("properties", properties(f.Message(), proto))
	case f.Kind() == protoreflect.StringKind:
		p.add("type", orNull("string"))
	case f.Kind() == protoreflect.BoolKind:
		p.add("type", orNull("boolean"))
	default:
		p.add("type", orNull("integer"))
		bounds := map[protoreflect.Kind][2]json.Number{
			protoreflect.Int64Kind:  {"-9223372036854775808", "9223372036854775807"},
			protoreflect.Uint64Kind: {"0", "18446744073709551615"},
			protoreflect.Uint32Kind: {"0", "4294967295"},
		}[f.Kind()]
		p.add("minimum", bounds[0])
		p.add("maximum", bounds[1])
	}
}

// comment returns the comment above the first line of the proto that has mark in it, as one line of text.
func comment(proto, mark string) string {
	var words []string
	for line := range strings.Lines(proto) {
		line = strings.TrimSpace(line)
		switch text, is := strings.CutPrefix(line, "// "); {
		case strings.Contains(" "+line, mark):
			return strings.Join(words, " ")
		case is:
			words = append(words, text)
		default:
			words = nil
		}
	}
	return ""
}

// breaks says what of an old schema the new one does not hold to.
func breaks(before, after []byte) string {
	var a, b map[string]any
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil || a["$id"] != b["$id"] {
		return "" // there was none, or of another version
	}
	return narrower("", a, b)
}

func narrower(at string, a, b map[string]any) string {
	for _, key := range []string{"type", "format", "items", "additionalProperties", "minimum", "maximum", "required"} {
		if !reflect.DeepEqual(a[key], b[key]) {
			return fmt.Sprintf("%s: %s was %v and is %v", at, key, a[key], b[key])
		}
	}
	was, _ := a["properties"].(map[string]any)
	is, _ := b["properties"].(map[string]any)
	for name, p := range was {
		now, _ := is[name].(map[string]any)
		if now == nil {
			return at + "/" + name + " is gone"
		}
		if why := narrower(at+"/"+name, p.(map[string]any), now); why != "" {
			return why
		}
	}
	return ""
}

func TestSchemaOnlyGrows(t *testing.T) {
	text, err := os.ReadFile(protoPath)
	if err != nil {
		t.Fatal(err)
	}
	now := recordSchema(string(text))
	for _, c := range []struct{ old, new, want string }{
		{`"team": {`, `"team": {`, ""},
		{`"team": {`, `"crew": {`, "/team is gone"},
		{`"description": "Who journals`, `"description": "Whoever journals`, ""},
		{`"format": "date-time"`, `"format": "date"`, "_at: format was date-time"},
		{`"maximum": 4294967295`, `"maximum": 1`, "maximum was"},
		{DataSchema, "urn:spokegate:schema:usage-record:2", ""},
	} {
		changed := bytes.Replace(now, []byte(c.old), []byte(c.new), 1)
		if !bytes.Contains(now, []byte(c.old)) {
			t.Errorf("nothing to change: %s", c.old)
		}
		if why := breaks(now, changed); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s → %s: %q, want %q", c.old, c.new, why, c.want)
		}
	}
}

// Whatever a record holds, its JSON is what the schema says.
func TestRecordsFitTheSchema(t *testing.T) {
	b, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		line := AppendJSON(nil, randomRecord(rng))
		in := json.NewDecoder(bytes.NewReader(line))
		in.UseNumber()
		var v any
		if err := in.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if why := misfit("", schema, v); why != "" {
			t.Fatalf("%s: %s", line, why)
		}
	}
	if why := misfit("", schema, map[string]any{"id": "a"}); why == "" {
		t.Error("a record without a sequence fits")
	}
}

var integer = regexp.MustCompile(`^-?[0-9]+$`)

// misfit says where a value is not what a schema says: as much of the standard as our schema uses.
func misfit(at string, schema map[string]any, v any) string {
	kind := map[reflect.Type]string{
		reflect.TypeFor[string](): "string", reflect.TypeFor[bool](): "boolean", reflect.TypeFor[json.Number](): "integer",
		reflect.TypeFor[[]any](): "array", reflect.TypeFor[map[string]any](): "object", nil: "null",
	}[reflect.TypeOf(v)]
	if types, many := schema["type"].([]any); schema["type"] != kind && (!many || !slices.Contains(types, any(kind))) {
		return fmt.Sprintf("%s is %s, and not %v", at, kind, schema["type"])
	}
	if n, is := v.(json.Number); is && !integer.MatchString(n.String()) {
		return at + " is no integer"
	}
	o, _ := v.(map[string]any)
	if required, _ := schema["required"].([]any); o != nil {
		for _, name := range required {
			if _, is := o[name.(string)]; !is {
				return at + " lacks " + name.(string)
			}
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, in := range o {
		p, known := properties[name].(map[string]any)
		if any, open := schema["additionalProperties"].(map[string]any); open && !known {
			p, known = any, true
		}
		if !known {
			return at + "/" + name + " is not in the schema"
		}
		if why := misfit(at+"/"+name, p, in); why != "" {
			return why
		}
	}
	return ""
}
