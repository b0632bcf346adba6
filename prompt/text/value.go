package text

import (
	"strconv"
	"unsafe"

	"github.com/ardanlabs/jinja"

	"github.com/spokegate/spokegate/openai"
)

// value makes a template's value of JSON. Members keep their order, for templates write them out.
func value(v []byte) jinja.Value {
	switch kind(v) {
	case '"':
		return jinja.NewString(unquote(v))
	case '{':
		dict := jinja.NewDict()
		openai.Each(v, func(key, member []byte) bool {
			dict.AsDict().Set(unquote(key), value(member))
			return true
		})
		return dict
	case '[':
		var items []jinja.Value
		openai.Each(v, func(_, item []byte) bool {
			items = append(items, value(item))
			return true
		})
		return jinja.NewList(items)
	case 't':
		return jinja.NewBool(true)
	case 'f':
		return jinja.NewBool(false)
	case 'n', 0:
		return jinja.None()
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return jinja.NewInt(n)
	}
	f, _ := strconv.ParseFloat(string(v), 64)
	return jinja.NewFloat(f)
}

// unquote makes a string without a second copy: a prompt is in it.
func unquote(v []byte) string {
	b := openai.Unquote(make([]byte, 0, len(v)), v)
	return unsafe.String(unsafe.SliceData(b), len(b)) // nobody else has b
}

// members of an object, by name.
func members(object []byte) map[string][]byte {
	m := map[string][]byte{}
	openai.Each(object, func(key, v []byte) bool {
		m[unquote(key)] = v
		return true
	})
	return m
}

// present says that a member is there and not null.
func present(v []byte) bool { return len(v) > 0 && v[0] != 'n' }
