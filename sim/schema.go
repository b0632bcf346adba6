package sim

import (
	"encoding/json"
	"slices"
	"strings"
)

// sampleDepth bounds recursion through a schema.
const sampleDepth = 16

// schema is the part of JSON Schema that an example value needs.
type schema struct {
	Type                json.RawMessage   `json:"type"`
	Const               json.RawMessage   `json:"const"`
	Enum                []json.RawMessage `json:"enum"`
	Default             json.RawMessage   `json:"default"`
	Properties          json.RawMessage   `json:"properties"`
	Items               json.RawMessage   `json:"items"`
	MinItems            int               `json:"minItems"`
	Minimum             json.RawMessage   `json:"minimum"`
	MinLength           int               `json:"minLength"`
	AnyOf, OneOf, AllOf []json.RawMessage
	Ref                 string `json:"$ref"`
}

// sampler makes one value that fits a schema, as far as the keywords above go.
type sampler struct{ root json.RawMessage }

// sample gives an example of the schema as compact JSON; no schema: an object.
func sample(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return "{}"
	}
	return sampler{raw}.value(raw, 0)
}

func (s sampler) value(raw json.RawMessage, depth int) string {
	var n schema
	if depth > sampleDepth || json.Unmarshal(raw, &n) != nil {
		return "null"
	}
	switch {
	case len(n.Const) > 0:
		return compact(n.Const)
	case len(n.Enum) > 0:
		return compact(n.Enum[0])
	case n.Ref != "":
		return s.value(s.resolve(n.Ref), depth+1)
	}
	for _, branches := range [][]json.RawMessage{n.AnyOf, n.OneOf, n.AllOf} {
		if len(branches) > 0 {
			return s.value(branches[0], depth+1)
		}
	}
	return s.typed(n, depth)
}

func (s sampler) typed(n schema, depth int) string {
	switch n.kind() {
	case "object":
		return s.object(n, depth)
	case "array":
		return s.array(n, depth)
	case "string":
		return `"` + strings.Repeat("simulated", max(1, (min(n.MinLength, 1024)+8)/9)) + `"`
	case "integer", "number":
		if len(n.Minimum) > 0 {
			return compact(n.Minimum)
		}
		return "1"
	case "boolean":
		return "true"
	}
	return "null"
}

// kind is the first type that is not null.
func (n schema) kind() string {
	var one string
	var many []string
	switch {
	case json.Unmarshal(n.Type, &one) == nil:
		return one
	case json.Unmarshal(n.Type, &many) == nil:
		for _, t := range many {
			if t != "null" {
				return t
			}
		}
	case len(n.Properties) > 0:
		return "object"
	}
	return ""
}

// object fills all properties, in name order.
func (s sampler) object(n schema, depth int) string {
	var properties map[string]json.RawMessage
	_ = json.Unmarshal(n.Properties, &properties)
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	fields := make([]string, 0, len(names))
	for _, name := range names {
		key, _ := json.Marshal(name)
		fields = append(fields, string(key)+":"+s.value(properties[name], depth+1))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func (s sampler) array(n schema, depth int) string {
	if len(n.Items) == 0 {
		return "[]"
	}
	items := make([]string, min(max(n.MinItems, 1), 64))
	for i := range items {
		items[i] = s.value(n.Items, depth+1)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// resolve follows a reference inside the schema: "#", or "#/$defs/NAME" and the like.
func (s sampler) resolve(ref string) json.RawMessage {
	at := s.root
	for _, step := range strings.Split(strings.Trim(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if step == "" {
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil {
			return nil
		}
		at = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}

func compact(raw json.RawMessage) string {
	b, err := json.Marshal(raw)
	if err != nil {
		return "null"
	}
	return string(b)
}
