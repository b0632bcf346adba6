package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// object keeps the order of a schema's members as they are written here, so that the output reads well and never changes
// by itself.
type object []pair

type pair struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := plain(p.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plain is JSON without the escapes that are meant for HTML.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Schema is the JSON schema (draft 7, which editors know best) of a [File]. It is made from the File's types, so it knows
// the keys that the strict decoder knows; what refers to something else, the decoder alone can say.
func Schema() []byte {
	root := append(object{
		{"$schema", "http://json-schema.org/draft-07/schema#"},
		{"title", "Spokegate policy"},
		{"description", "Which models exist, who may use them, and within what limits."},
	}, structSchema(reflect.TypeFor[File]())...)
	compact, err := plain(root)
	if err != nil {
		return nil // only strings and numbers are in it; a test says so
	}
	var out bytes.Buffer
	_ = json.Indent(&out, compact, "", "  ")
	out.WriteByte('\n')
	return out.Bytes()
}

func structSchema(t reflect.Type) object {
	var properties object
	required := []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		s := append(object{{"description", f.Tag.Get("doc")}}, typeSchema(f.Type, f.Tag.Get("form"))...)
		properties = append(properties, pair{name, s})
		if f.Tag.Get("need") == "yes" {
			required = append(required, name)
		}
	}
	out := object{{"type", "object"}, {"additionalProperties", false}}
	if len(required) > 0 {
		out = append(out, pair{"required", required})
	}
	return append(out, pair{"properties", properties})
}

func typeSchema(t reflect.Type, form string) object {
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem(), form)
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		out := object{{"type", "array"}}
		if demandsEntries(form) {
			out = append(out, pair{"minItems", 1})
		}
		return append(out, pair{"items", typeSchema(t.Elem(), form)})
	case reflect.Map:
		return object{{"type", "object"}, {"propertyNames", object{{"pattern", labelForm}}}, {"maxProperties", MaxLabels},
			{"additionalProperties", typeSchema(t.Elem(), form)}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int64: // Micros: text, or a number
		return object{{"anyOf", []object{
			{{"type", "string"}, {"pattern", microsForm}}, {{"type", "number"}, {"minimum", 0}, {"maximum", int64(MaxPrice / microsInOne)}},
		}}}
	case reflect.Uint32, reflect.Uint64:
		return append(object{{"type", "integer"}}, formSchema(form)...)
	case reflect.Float64:
		return append(object{{"type", "number"}}, formSchema(form)...)
	default:
		return append(object{{"type", "string"}}, formSchema(form)...)
	}
}

// formSchema is what a form adds to its type.
func formSchema(form string) object {
	switch form {
	case "id":
		return object{{"pattern", idForm}}
	case "model":
		return object{{"pattern", modelForm}}
	case "patterns":
		return object{{"pattern", patternForm}}
	case "field":
		return object{{"pattern", fieldForm}}
	case "hash":
		return object{{"pattern", hashForm}}
	case "engine":
		return object{{"pattern", engineForm}}
	case "claim":
		return object{{"pattern", claimForm}}
	case "team":
		return object{{"pattern", idForm}}
	case "network":
		return object{{"pattern", networkForm}}
	case "path":
		return object{{"pattern", "^/."}}
	case "https":
		return object{{"pattern", "^https://."}}
	case "revoke":
		return object{{"enum", []string{"cut", "finish"}}}
	case "currency":
		return object{{"pattern", currencyForm}}
	case "label":
		return object{{"maxLength", MaxLabel}}
	case "subject":
		return object{{"minLength", 1}, {"maxLength", MaxSubject}}
	case "quota":
		return object{{"minimum", 1}, {"maximum", int64(MaxQuota)}}
	case "share":
		return object{{"minimum", 0}, {"maximum", 1}}
	case "time":
		return object{{"format", "date-time"}}
	case "rate":
		return object{{"minimum", MinRate}, {"maximum", MaxRate}}
	case "count":
		return object{{"minimum", 1}, {"maximum", MaxCount}}
	case "weight":
		return object{{"minimum", 0}, {"maximum", MaxWeight}}
	case "block":
		return object{{"minimum", MinBlock}, {"maximum", MaxBlock}}
	}
	return nil
}
