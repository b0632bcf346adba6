package text

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/spokegate/spokegate/openai"
)

// tools are the functions on offer, as the engine writes them out.
func tools(req *openai.Request, body []byte) jinja.Value {
	v := get(req, body, "tools")
	if kind(v) != '[' {
		return jinja.None()
	}
	var list []jinja.Value
	openai.Each(v, func(_, tool []byte) bool {
		list = append(list, tool1(tool))
		return true
	})
	return jinja.NewList(list)
}

// tool1 writes one in the order of the schema, without what that does not know.
func tool1(tool []byte) jinja.Value {
	in := members(tool)
	function, f := jinja.NewDict(), members(in["function"])
	for _, name := range []string{"name", "description", "parameters"} {
		function.AsDict().Set(name, value(f[name]))
	}
	if present(f["strict"]) {
		function.AsDict().Set("strict", value(f["strict"]))
	}
	later := in["defer_loading"]
	if own := f["defer_loading"]; present(own) {
		function.AsDict().Set("defer_loading", value(own))
	} else if present(later) {
		function.AsDict().Set("defer_loading", value(later))
	}
	out := jinja.NewDict()
	out.AsDict().Set("type", jinja.NewString("function"))
	out.AsDict().Set("function", function)
	if present(later) {
		out.AsDict().Set("defer_loading", value(later))
	}
	return out
}

// validObject is v if it is a JSON object; nil otherwise. It came as a client's string, which nobody has looked into.
func validObject(v []byte) []byte {
	v = bytes.TrimSpace(v)
	if kind(v) != '{' || !json.Valid(v) {
		return nil
	}
	return v
}

// oneSystem makes developers' messages the system's, and all of the system's one, in front, where one is not there already.
func oneSystem(list []jinja.Value) []jinja.Value {
	var said []string
	var others []jinja.Value
	move := false
	for i, message := range list {
		d := message.AsDict()
		role, _ := d.Get("role")
		if r := role.AsString(); r != "developer" && r != "system" {
			others = append(others, message)
			continue
		}
		d.Set("role", jinja.NewString("system"))
		d.Keys, d.Data = without(d, "tools")
		move = move || i > 0
		if content := contentOf(d); content != "" {
			said = append(said, content)
		}
	}
	if !move {
		return list
	}
	one := jinja.NewDict()
	one.AsDict().Set("role", jinja.NewString("system"))
	one.AsDict().Set("content", jinja.NewString(strings.Join(said, "\n\n")))
	return append([]jinja.Value{one}, others...)
}

func without(d *jinja.Dict, name string) ([]string, map[string]jinja.Value) {
	var keys []string
	for _, k := range d.Keys {
		if k != name {
			keys = append(keys, k)
		}
	}
	delete(d.Data, name)
	return keys, d.Data
}

// contentOf is a message's content as one string.
func contentOf(d *jinja.Dict) string {
	content, _ := d.Get("content")
	if content.IsString() {
		return content.AsString()
	}
	var texts []string
	for _, part := range content.AsList().Items {
		text, _ := part.AsDict().Get("text")
		texts = append(texts, text.AsString())
	}
	return strings.Join(texts, "\n")
}
