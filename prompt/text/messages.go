package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/spokegate/spokegate/openai"
)

// What vLLM (0.32) does to a chat before the template sees it:
//   - of a message it keeps role and content, of an assistant's the tool calls and the reasoning, of a tool's the id of the call;
//   - content becomes a string (parts joined by line feeds) or a list of parts, whichever the template goes through;
//   - the arguments of tool calls become objects; what is none becomes an empty one;
//   - "developer" becomes "system" where the template does not know it, and then all of them become one, in front;
//   - a line of attribution that one client puts into its system prompt, new in each request, goes;
//   - tools are written in the order of the schema.

// chat renders a chat through the template.
func (m *Model) chat(req *openai.Request, body []byte) (string, error) {
	if m.template == nil || present(get(req, body, "chat_template")) || string(get(req, body, "continue_final_message")) == "true" {
		return "", ErrTemplate
	}
	list, cut := m.messages(get(req, body, "messages"))
	data := map[string]jinja.Value{
		"messages": jinja.NewList(list), "tools": tools(req, body), "documents": value(get(req, body, "documents")),
		"add_generation_prompt": jinja.NewBool(string(get(req, body, "add_generation_prompt")) != "false"),
		"bos_token":             jinja.NewString(m.bos), "eos_token": jinja.NewString(m.eos),
	}
	if effort := get(req, body, "reasoning_effort"); present(effort) {
		data["reasoning_effort"] = value(effort)
		data["enable_thinking"] = jinja.NewBool(string(effort) != `"none"`)
	}
	openai.Each(get(req, body, "chat_template_kwargs"), func(key, v []byte) bool {
		if name := unquote(key); name != "messages" && name != "tools" {
			data[name] = value(v)
		}
		return true
	})
	out, err := m.render(data)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if cut == nil {
		return out, nil
	}
	before, _, marked := strings.Cut(out, mark)
	if !marked { // where it is, nobody knows
		return "", cut
	}
	return before, cut
}

// render keeps a fault of the template from ending the process: it came from outside.
func (m *Model) render(data map[string]jinja.Value) (out string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	data[toJSONName] = toJSON
	new(budget).add(data)
	return m.template.RenderValues(data)
}

// messages are as the template takes them. cut says that one has more in it than text: the first such begins with the mark.
func (m *Model) messages(list []byte) (out []jinja.Value, cut error) {
	developer := false
	openai.Each(list, func(_, message []byte) bool {
		in := members(message)
		role := unquote(in["role"])
		pieces, err := piecesOf(in["content"])
		if cut == nil && err != nil {
			cut, pieces = err, slices.Insert(pieces, 0, piece{text: mark})
		}
		developer = developer || role == "developer"
		out = append(out, m.message(role, in, pieces))
		return true
	})
	if developer && !m.roles {
		out = oneSystem(out)
	}
	return out, cut
}

func (m *Model) message(role string, in map[string][]byte, content []piece) jinja.Value {
	if role == "system" {
		content = withoutAttribution(content)
	}
	out := jinja.NewDict()
	set := out.AsDict().Set
	set("role", jinja.NewString(role))
	if m.parts && role != "tool" {
		set("content", asParts(content))
	} else {
		set("content", jinja.NewString(joined(content, m.parts)))
	}
	switch role {
	case "assistant":
		if calls := in["tool_calls"]; kind(calls) == '[' {
			if list := toolCalls(calls); len(list) > 0 {
				set("tool_calls", jinja.NewList(list))
			}
		}
		if r := in["reasoning"]; present(r) {
			set("reasoning", value(r))
			set("reasoning_content", value(r))
		}
	case "tool":
		if id, is := in["tool_call_id"]; is {
			set("tool_call_id", value(id))
		}
	case "developer":
		set("tools", value(in["tools"]))
	}
	for _, name := range []string{"name", "task"} {
		if kind(in[name]) == '"' {
			set(name, value(in[name]))
		}
	}
	return out
}

func toolCalls(list []byte) []jinja.Value {
	var out []jinja.Value
	openai.Each(list, func(_, call []byte) bool {
		v := value(call)
		if v.IsDict() {
			if f, is := v.AsDict().Get("function"); is && f.IsDict() {
				f.AsDict().Set("arguments", arguments(members(members(call)["function"])["arguments"]))
			}
		}
		out = append(out, v)
		return true
	})
	return out
}

// arguments of a call as an object.
func arguments(v []byte) jinja.Value {
	if kind(v) == '"' {
		v = openai.Unquote(nil, v)
	}
	if object := validObject(v); object != nil {
		return value(object)
	}
	return jinja.NewDict()
}
