package api

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// validator holds a value against a schema of the document: as much of JSON Schema as the document uses, and an error for
// any other word, so that nothing passes because nobody looked.
type validator struct{ document map[string]any }

func (v validator) check(schema any, value any, at string) error {
	s, is := schema.(map[string]any)
	if !is {
		return fmt.Errorf("%s: there is no schema", at)
	}
	for word, want := range s {
		if err := v.word(s, word, want, value, at); err != nil {
			return err
		}
	}
	return nil
}

func (v validator) word(s map[string]any, word string, want, value any, at string) error {
	switch word {
	case "description":
	case "$ref":
		return v.check(v.referred(want.(string)), value, at)
	case "allOf":
		for _, part := range want.([]any) {
			if err := v.check(part, value, at); err != nil {
				return err
			}
		}
	case "anyOf":
		for _, part := range want.([]any) {
			if v.check(part, value, at) == nil {
				return nil
			}
		}
		return fmt.Errorf("%s: none of anyOf fits %v", at, value)
	case "type":
		if kind := typeOf(value); kind != want && (kind != "integer" || want != "number") {
			return fmt.Errorf("%s: is %s, want %v", at, kind, want)
		}
	case "enum":
		if !slices.Contains(want.([]any), value) {
			return fmt.Errorf("%s: %v is none of %v", at, value, want)
		}
	case "required", "properties", "additionalProperties", "propertyNames", "maxProperties":
		if object, is := value.(map[string]any); is {
			return v.object(s, word, want, object, at)
		}
	case "items", "minItems":
		if list, is := value.([]any); is {
			return v.list(word, want, list, at)
		}
	case "pattern", "format", "minLength", "maxLength":
		if text, is := value.(string); is {
			return textual(word, want, text, at)
		}
	case "minimum", "maximum":
		if n, is := value.(json.Number); is {
			return numeric(word, want.(json.Number), n, at)
		}
	default:
		return fmt.Errorf("%s: the validator does not know the word %q", at, word)
	}
	return nil
}

func (v validator) referred(to string) any {
	var at any = v.document
	for part := range strings.SplitSeq(strings.TrimPrefix(to, "#/"), "/") {
		m, _ := at.(map[string]any)
		at = m[part]
	}
	return at
}

func (v validator) object(s map[string]any, word string, want any, value map[string]any, at string) error {
	properties, _ := s["properties"].(map[string]any)
	switch word {
	case "required":
		for _, name := range want.([]any) {
			if _, has := value[name.(string)]; !has {
				return fmt.Errorf("%s: lacks %v", at, name)
			}
		}
	case "properties":
		for name, x := range value {
			if inner, known := properties[name]; known {
				if err := v.check(inner, x, at+"."+name); err != nil {
					return err
				}
			}
		}
	case "additionalProperties":
		for name, x := range value {
			if _, known := properties[name]; known {
				continue
			}
			if want == false {
				return fmt.Errorf("%s: has %q, which is not described", at, name)
			}
			if err := v.check(want, x, at+"."+name); err != nil {
				return err
			}
		}
	case "propertyNames":
		for name := range value {
			if err := v.check(want, name, at); err != nil {
				return err
			}
		}
	case "maxProperties":
		return numeric("maximum", want.(json.Number), json.Number(fmt.Sprint(len(value))), at)
	}
	return nil
}

func (v validator) list(word string, want any, value []any, at string) error {
	if word == "minItems" {
		return numeric("minimum", want.(json.Number), json.Number(fmt.Sprint(len(value))), at)
	}
	for i, x := range value {
		if err := v.check(want, x, fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func typeOf(value any) string {
	switch x := value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if strings.ContainsAny(x.String(), ".eE") {
			return "number"
		}
		return "integer"
	}
	return "null"
}

func textual(word string, want any, text, at string) error {
	ok := false
	switch word {
	case "pattern":
		ok = regexp.MustCompile(want.(string)).MatchString(text)
	case "format":
		_, err := time.Parse(time.RFC3339, text)
		ok = want == "date-time" && err == nil
	case "minLength":
		return numeric("minimum", want.(json.Number), json.Number(fmt.Sprint(utf8.RuneCountInString(text))), at)
	case "maxLength":
		return numeric("maximum", want.(json.Number), json.Number(fmt.Sprint(utf8.RuneCountInString(text))), at)
	}
	if !ok {
		return fmt.Errorf("%s: %q is not of the %s %v", at, text, word, want)
	}
	return nil
}

func numeric(word string, want, n json.Number, at string) error {
	a, okA := new(big.Float).SetString(n.String())
	b, okB := new(big.Float).SetString(want.String())
	if c := 0; okA && okB {
		if c = a.Cmp(b); word == "minimum" && c >= 0 || word == "maximum" && c <= 0 {
			return nil
		}
	}
	return fmt.Errorf("%s: %v, and the %s is %v", at, n, word, want)
}
