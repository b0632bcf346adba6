package policy

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// decoder fills the File's types from nodes and remembers where each of them stands.
type decoder struct {
	*reader
	places map[any]*node // by pointer to an entry
}

var (
	wholeRE = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	floatRE = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// value decodes n into v, by v's type. A value of a wrong kind is reported; v gets what makes no second problem of it.
func (d *decoder) value(n *node, path, form string, v reflect.Value) {
	switch v.Interface().(type) {
	case string:
		if form == "network" && n.kind == mapping { // to YAML, what stands before a colon is a key
			d.add(n.line, n.col, path, "want text, not a mapping; put an IPv6 address in quotes")
			return
		}
		d.text(n, path, v)
	case bool:
		d.boolean(n, path, v)
	case *float64:
		d.float(n, path, v)
	case *uint32, *uint64:
		d.whole(n, path, v)
	case *Micros:
		d.micros(n, path, v)
	case map[string]string:
		d.texts(n, path, v)
	default:
		if v.Kind() == reflect.Slice {
			d.list(n, path, form, v)
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		d.entry(n, path, v)
	}
}

// expect reports a node of another kind than the one wanted.
func (d *decoder) expect(n *node, path string, want kind) bool {
	switch {
	case n.kind == want:
		return true
	case n.kind == nothing:
		d.add(n.line, n.col, path, "has no value; want %s, or leave the key out", want)
	case want == text && n.kind != list && n.kind != mapping:
		d.add(n.line, n.col, path, "want text, not %s; put it in quotes", n.kind)
	default:
		d.add(n.line, n.col, path, "want %s, not %s", want, n.kind)
	}
	return false
}

// text keeps a scalar of another kind too: the problem is reported, and what refers to the name finds it.
func (d *decoder) text(n *node, path string, v reflect.Value) {
	d.expect(n, path, text)
	v.SetString(n.text)
}

func (d *decoder) boolean(n *node, path string, v reflect.Value) {
	if d.expect(n, path, boolean) {
		v.SetBool(strings.EqualFold(n.text, "true"))
	}
}

func (d *decoder) float(n *node, path string, v reflect.Value) {
	f := 1.0
	v.Set(reflect.ValueOf(&f))
	if !d.expect(n, path, number) {
		return
	}
	read, err := strconv.ParseFloat(n.text, 64)
	if err != nil || !floatRE.MatchString(n.text) {
		d.add(n.line, n.col, path, "want a plain finite number, like 50 or 0.5")
		return
	}
	f = read
}

func (d *decoder) whole(n *node, path string, v reflect.Value) {
	v.Set(reflect.New(v.Type().Elem()))
	w := v.Elem()
	w.SetUint(1)
	if !d.expect(n, path, number) {
		return
	}
	u, err := strconv.ParseUint(n.text, 10, w.Type().Bits())
	if err != nil || !wholeRE.MatchString(n.text) {
		d.add(n.line, n.col, path, "want a plain whole number above 0, like 100")
		return
	}
	w.SetUint(u)
}

// micros takes text too, and goes by what is written: a floating-point number has no exact tenth.
func (d *decoder) micros(n *node, path string, v reflect.Value) {
	var m Micros
	v.Set(reflect.ValueOf(&m))
	if n.kind != text && !d.expect(n, path, number) {
		return
	}
	read, ok := ParseMicros(n.text)
	if !ok {
		d.add(n.line, n.col, path, wantMicros)
	}
	m = read
}

// texts decodes a mapping whose keys are the user's own.
func (d *decoder) texts(n *node, path string, v reflect.Value) {
	if !d.expect(n, path, mapping) {
		return
	}
	out := make(map[string]string, len(n.members))
	for _, m := range n.members {
		if d.expect(m.value, join(path, m.name), text) {
			out[m.name] = m.value.text
		}
	}
	v.Set(reflect.ValueOf(out))
}

// list decodes a list. An empty one says something else than none where the form demands entries: a key whose models
// were all taken out would get everything of its team, one without a network left could come from everywhere.
func (d *decoder) list(n *node, path, form string, v reflect.Value) {
	if !d.expect(n, path, list) {
		return
	}
	if len(n.items) == 0 && demandsEntries(form) {
		d.add(n.line, n.col, path, "is empty; want at least one entry, or leave the key out")
	}
	for i, item := range n.items {
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(item, label(path, item.label(), i), form, e)
		v.Set(reflect.Append(v, e))
	}
}

func demandsEntries(form string) bool {
	switch form {
	case "patterns", "filled", "network", "team":
		return true
	}
	return false
}

// label is what a mapping calls itself.
func (n *node) label() string {
	for _, key := range []string{"name", "id"} {
		if m := n.member(key); m != nil {
			return m.text
		}
	}
	return ""
}

// entry decodes a mapping into the struct that v points to.
func (d *decoder) entry(n *node, path string, v reflect.Value) {
	d.places[v.Interface()] = n
	if !d.expect(n, path, mapping) {
		return
	}
	for _, m := range n.members {
		f, ok := field(v.Elem().Type(), m.name)
		if !ok {
			d.unknown(m, path, v.Elem().Type())
			continue
		}
		d.value(m.value, join(path, m.name), f.Tag.Get("form"), v.Elem().FieldByIndex(f.Index))
	}
}

func (d *decoder) unknown(m member, path string, t reflect.Type) {
	why := hint(m.name)
	if why == "" {
		names := make([]string, t.NumField())
		for i := range names {
			names[i] = t.Field(i).Tag.Get("yaml")
		}
		why = "known here are " + strings.Join(names, ", ")
	}
	d.add(m.line, m.col, join(path, m.name), "unknown key; %s", why)
}

// field finds the field of a File's type by its YAML key.
func field(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("yaml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
