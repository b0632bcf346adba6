package api

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/spokegate/spokegate/hub"
)

// document is openapi.json while it is made.
type document struct{ schemas map[string]any }

// OpenAPI is the description of the API, by OpenAPI 3.1. It is made from the table of routes and the types of their messages.
func OpenAPI() []byte {
	o := &document{schemas: map[string]any{}}
	o.bodySchemas()
	paths := map[string]map[string]any{}
	for _, r := range routes() {
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		paths[r.path][strings.ToLower(r.method)] = o.operation(r)
	}
	out, err := json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "Spokegate hub", "version": "1",
			"description": "What a policy consists of, its revisions, and who holds which. Every change makes a revision, which is checked whole before it is stored."},
		"security":   []any{map[string]any{"token": []any{}}},
		"paths":      paths,
		"components": map[string]any{"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}}, "schemas": o.schemas},
	}, "", " ")
	if err != nil {
		return nil // only texts and numbers are in it; a test reads it
	}
	return out
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (o *document) operation(r *route) map[string]any {
	op := map[string]any{"operationId": r.id, "summary": r.doc, "responses": o.responses(r)}
	if r.open {
		op["security"] = []any{}
	} else {
		op["description"] = "For the roles " + listed(r.roles) + "."
		op["x-roles"] = r.roles
	}
	if list := r.parametersDoc(); len(list) > 0 {
		op["parameters"] = list
	}
	switch {
	case r.in != nil && r.of != "":
		op["requestBody"] = content("application/json", schema{"$ref": "#/components/schemas/" + bodyName(r.of)}, !r.mayLack)
	case r.in != nil:
		op["requestBody"] = content("application/json", o.schemaOf(r.in), !r.mayLack)
	case r.inKind != "":
		op["requestBody"] = content(r.inKind, schema{"type": "string", "description": "A policy file."}, true)
	}
	return op
}

func content(kind string, s schema, required bool) map[string]any {
	return map[string]any{"required": required, "content": map[string]any{kind: map[string]any{"schema": s}}}
}

func (r *route) parametersDoc() (list []any) {
	add := func(in, name, doc string, required bool, s schema) {
		list = append(list, map[string]any{"in": in, "name": name, "description": doc, "required": required, "schema": s})
	}
	for _, m := range inPath.FindAllStringSubmatch(r.path, -1) {
		if m[1] == "number" {
			add("path", m[1], "The revision's number.", true, schema{"type": "integer", "minimum": 1})
		} else {
			add("path", m[1], "The name; a / in it is written %2F.", true, schema{"type": "string"})
		}
	}
	for _, p := range r.query {
		s := schema{"type": "string"}
		if p.whole {
			s = schema{"type": "integer", "minimum": 0}
		}
		add("query", p.name, p.doc, false, s)
	}
	if r.condition {
		add("header", "If-Match", `The ETag that you last saw, or * for whatever is there. Want this or If-None-Match.`, false, schema{"type": "string"})
		add("header", "If-None-Match", "*: it must not be there.", false, schema{"type": "string"})
	}
	if r.changes {
		add("header", "Idempotency-Key", "Makes it safe to send the same again, for a day: the answer is that of the first time, but for secrets, which are not repeated.",
			false, schema{"type": "string", "minLength": 1, "maxLength": 255})
	}
	return list
}

// responses: the yes, and one problem for all of the rest.
func (o *document) responses(r *route) map[string]any {
	out := map[string]any{"default": map[string]any{"description": "Why not.",
		"content": map[string]any{"application/problem+json": map[string]any{"schema": o.reference(reflect.TypeFor[Problem]())}}}}
	statuses := r.statuses
	if statuses == nil {
		statuses = []int{200}
	}
	for _, status := range statuses {
		yes := map[string]any{"description": r.doc}
		switch {
		case r.out != nil:
			yes["content"] = map[string]any{"application/json": map[string]any{"schema": o.answered(r)}}
		case r.outKind != "":
			yes["content"] = map[string]any{r.outKind: map[string]any{"schema": schema{}}}
		}
		out[strconv.Itoa(status)] = yes
	}
	if r.method == "GET" && r.out == reflect.TypeFor[Object]() {
		out["304"] = map[string]any{"description": "It is as If-None-Match says."}
	}
	return out
}

// answered is the schema of an answer; where it is about things of one kind, with the members of these.
func (o *document) answered(r *route) schema {
	general := o.schemaOf(r.out)
	if r.of == "" {
		return general
	}
	body := schema{"properties": map[string]any{"body": schema{"$ref": "#/components/schemas/" + bodyName(r.of)}}}
	var narrow schema
	switch r.out {
	case reflect.TypeFor[List[Object]]():
		narrow = schema{"properties": map[string]any{"items": schema{"type": "array", "items": body}}}
	case reflect.TypeFor[Changed]():
		narrow = schema{"properties": map[string]any{"object": body}}
	default:
		narrow = body
	}
	return schema{"allOf": []any{general, narrow}}
}

func bodyName(kind hub.Kind) string {
	return strings.ToUpper(string(kind)[:1]) + string(kind)[1:] + "Body"
}
