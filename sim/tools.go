package sim

import "encoding/json"

// tool is a function the client offers, in any of the three dialects.
type tool struct {
	Name        string          `json:"name"`
	Parameters  json.RawMessage `json:"parameters"`   // Responses
	InputSchema json.RawMessage `json:"input_schema"` // Anthropic
	Function    *struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"` // chat
}

func (t tool) name() string {
	if t.Function != nil {
		return t.Function.Name
	}
	return t.Name
}

func (t tool) schema() json.RawMessage {
	switch {
	case t.Function != nil:
		return t.Function.Parameters
	case len(t.InputSchema) > 0:
		return t.InputSchema
	}
	return t.Parameters
}

// toolChoice is a mode, or an object that names a function.
type toolChoice struct {
	mode, name string
}

func (c *toolChoice) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &c.mode) == nil {
		return nil
	}
	var object struct {
		Type, Name string
		Function   struct{ Name string }
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	c.mode, c.name = object.Type, object.Name+object.Function.Name
	return nil
}

// required is the tool that must be called; nil: none, the answer is text.
func (c toolChoice) required(tools []tool) (*tool, error) {
	switch {
	case c.name != "":
		for i := range tools {
			if tools[i].name() == c.name {
				return &tools[i], nil
			}
		}
		return nil, badRequest("tool_choice", "tool_choice names %.64q, which is not among the tools", c.name)
	case c.mode == "required" || c.mode == "any":
		if len(tools) == 0 {
			return nil, badRequest("tool_choice", "tool_choice requires a tool, and there are none")
		}
		return &tools[0], nil
	}
	return nil, nil
}

// format is what response_format (chat) or text.format (Responses) asks for.
type format struct {
	Type       string          `json:"type"`
	Schema     json.RawMessage `json:"schema"` // Responses
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"` // chat
}

// wish is what decides the kind of answer.
type wish struct {
	tools  []tool
	choice toolChoice
	format *format
}

// answer decides one answer in full.
func (w wish) answer(seed uint64, a ask) (script, error) {
	called, err := w.choice.required(w.tools)
	if err != nil {
		return script{}, err
	}
	if called != nil {
		s := recite(sample(called.schema()), ask{max: a.max, room: a.room})
		s.call = called.name()
		if s.finish == "stop" {
			s.finish = "tool_calls"
		}
		return s, nil
	}
	if w.format != nil {
		switch w.format.Type {
		case "json_object":
			return recite(`{"simulator":true}`, a), nil
		case "json_schema":
			shape := w.format.Schema
			if len(shape) == 0 {
				shape = w.format.JSONSchema.Schema
			}
			return recite(sample(shape), a), nil
		}
	}
	return talk(seed, a), nil
}

// answers decides n of them.
func (w wish) answers(root uint64, prompt []byte, n int, a ask) ([]script, error) {
	seed := fnv(root, prompt)
	out := make([]script, 0, n)
	for i := range n {
		s, err := w.answer(mix(seed+uint64(i)), a)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
