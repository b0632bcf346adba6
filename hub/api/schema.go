package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schema is a JSON schema, of the part of 2020-12 that is used here.
type schema map[string]any

// schemaOf makes the schema of a type of this package's messages, by its tags: json, the name and whether it may be absent;
// doc, for people. Named structs are references to what schemas collects.
func (o *document) schemaOf(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return schema{"$ref": "#/components/schemas/Body"}
	case reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return o.schemaOf(t.Elem())
	case reflect.Struct:
		return o.reference(t)
	case reflect.Slice:
		return schema{"type": "array", "items": o.schemaOf(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": o.schemaOf(t.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Interface:
		return schema{}
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	}
	return schema{"type": "integer"}
}

// reference names a struct's schema, which it adds to the document the first time.
func (o *document) reference(t reflect.Type) schema {
	name := schemaName(t)
	if _, known := o.schemas[name]; !known {
		o.schemas[name] = schema{} // a type may hold itself
		o.schemas[name] = o.object(t)
	}
	return schema{"$ref": "#/components/schemas/" + name}
}

// schemaName is the type's name, with a capital; of a page, its items' and List.
func schemaName(t reflect.Type) string {
	name, of, generic := strings.Cut(t.Name(), "[")
	if generic {
		of = strings.TrimSuffix(of, "]")
		name = of[strings.LastIndex(of, ".")+1:] + "List"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func (o *document) object(t reflect.Type) schema {
	properties := map[string]any{}
	required := []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue // not sent
		}
		s := o.schemaOf(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			s["description"] = doc
		}
		if words := f.Tag.Get("enum"); words != "" {
			s["enum"] = strings.Split(words, ",")
		}
		properties[name] = s
		if option == "" {
			required = append(required, name)
		}
	}
	return schema{"type": "object", "additionalProperties": false, "required": required, "properties": properties}
}
