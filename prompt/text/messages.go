package text

import (
	"fmt"
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
	list, err := m.messages(get(req, body, "messages"))
	if err != nil {
		return "", err
	}
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
	return out, nil
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

func (m *Model) messages(list []byte) ([]jinja.Value, error) {
	var out []jinja.Value
	var failed error
	developer := false
	openai.Each(list, func(_, message []byte) bool {
		var v jinja.Value
		in := members(message)
		role := unquote(in["role"])
		if v, failed = m.message(role, in); failed != nil {
			return false
		}
		developer = developer || role == "developer"
		out = append(out, v)
		return true
	})
	if developer && !m.roles {
		out = oneSystem(out)
	}
	return out, failed
}

func (m *Model) message(role string, in map[string][]byte) (jinja.Value, error) {
	texts, err := textsOf(in["content"])
	if err != nil {
		return jinja.Value{}, err
	}
	if role == "system" {
		texts = withoutAttribution(texts)
	}
	out := jinja.NewDict()
	set := out.AsDict().Set
	set("role", jinja.NewString(role))
	if m.parts && role != "tool" {
		set("content", asParts(texts))
	} else {
		set("content", jinja.NewString(joined(texts, m.parts)))
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
	return out, nil
}

// textsOf are the texts of a content.
func textsOf(content []byte) (texts []string, err error) {
	switch kind(content) {
	case '"':
		return []string{unquote(content)}, nil
	case '[':
		openai.Each(content, func(_, part []byte) bool {
			text, is := textOf(part)
			if !is {
				err = ErrParts
				return false
			}
			texts = append(texts, text)
			return true
		})
		return texts, err
	}
	return nil, nil
}

func textOf(part []byte) (text string, is bool) {
	if kind(part) == '"' {
		return unquote(part), true
	}
	in := members(part)
	switch unquote(in["type"]) {
	case "text", "input_text", "output_text":
		return unquote(in["text"]), kind(in["text"]) == '"'
	case "refusal":
		return unquote(in["refusal"]), kind(in["refusal"]) == '"'
	}
	return "", false
}

// joined is a content as one string. Empty ones are left out where the engine has strings only.
func joined(texts []string, empty bool) string {
	if empty || len(texts) < 2 {
		return strings.Join(texts, "\n")
	}
	var some []string
	for _, t := range texts {
		if t != "" {
			some = append(some, t)
		}
	}
	return strings.Join(some, "\n")
}

func asParts(texts []string) jinja.Value {
	var list []jinja.Value
	for _, t := range texts {
		part := jinja.NewDict()
		part.AsDict().Set("type", jinja.NewString("text"))
		part.AsDict().Set("text", jinja.NewString(t))
		list = append(list, part)
	}
	return jinja.NewList(list)
}

// attribution begins a line that Claude Code puts in front of its system prompt.
const attribution = "x-anthropic-billing-header"

func withoutAttribution(texts []string) []string {
	var out []string
	for _, t := range texts {
		if strings.HasPrefix(t, attribution) {
			if _, t, _ = strings.Cut(t, "\n"); t == "" {
				continue
			}
		}
		out = append(out, t)
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
