package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds nesting of a body: a policy needs six levels.
const maxDepth = 32

// bodyFault is what is wrong with a body, and where: changes[0].body.limits.
type bodyFault struct{ path, text string }

func (f bodyFault) Error() string {
	if f.path == "" {
		return f.text
	}
	return f.path + ": " + f.text
}

// decode reads one JSON value into to, which is a pointer. Members that its type does not know fail, and so do members given
// twice at any depth, names in another case, and anything after the value: encoding/json would pass over all of these. What
// is a json.RawMessage is kept as it came.
func decode(body []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	s := strict{d}
	if err := s.value(reflect.TypeOf(to).Elem(), "", 0); err != nil {
		return notJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bodyFault{"", "there is more after the JSON value"}
	}
	err := json.Unmarshal(body, to)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return bodyFault{wrong.Field, fmt.Sprintf("want %s, not %s", wanted(wrong.Type), wrong.Value)}
	}
	if err != nil {
		return bodyFault{"", err.Error()}
	}
	return nil
}

// notJSON says it of a text that ends early or has a wrong character.
func notJSON(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bodyFault{"", "the body ends before its JSON value does"}
	case errors.As(err, &syntax):
		return bodyFault{"", fmt.Sprintf("not JSON: %v, at byte %d", err, syntax.Offset)}
	}
	return err
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "a whole number"
}

type strict struct{ *json.Decoder }

// value reads one value. t is what it goes into; nil: anything.
func (s strict) value(t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return bodyFault{path, fmt.Sprintf("nested more than %d levels deep", maxDepth)}
	}
	token, err := s.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return s.object(t, path, depth)
	case json.Delim('['):
		for i := 0; s.More(); i++ {
			if err := s.value(elem(t), path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
				return err
			}
		}
		_, err = s.Token()
	}
	return err
}

func (s strict) object(t reflect.Type, path string, depth int) error {
	names := members(t)
	given := map[string]bool{}
	for s.More() {
		token, err := s.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		at := strings.TrimPrefix(path+"."+name, ".")
		if given[name] {
			return bodyFault{at, "given twice"}
		}
		given[name] = true
		inner, known := names[name]
		if names != nil && !known {
			return bodyFault{at, "there is no such member; known here are " + strings.Join(sortedNames(names), ", ")}
		}
		if inner == nil {
			inner = elem(t)
		}
		if err := s.value(inner, at, depth+1); err != nil {
			return err
		}
	}
	_, err := s.Token()
	return err
}

// members are what an object of the type may have; nil: anything.
func members(t reflect.Type) map[string]reflect.Type {
	t = pointed(t)
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out[name] = t.Field(i).Type
	}
	return out
}

// elem is what a list or a map of the type holds; nil: anything.
func elem(t reflect.Type) reflect.Type {
	t = pointed(t)
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
		return nil
	}
	return t.Elem()
}

func pointed(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	return t
}

func sortedNames(m map[string]reflect.Type) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
