package sim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
)

// message is a turn, as chat, Responses and Anthropic messages have it; fields of other dialects stay empty.
type message struct {
	Role       string          `json:"role"`
	Type       string          `json:"type"` // Responses items
	Content    json.RawMessage `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	Name       string          `json:"name"`
	Arguments  string          `json:"arguments"`
	Output     json.RawMessage `json:"output"`
}

// render writes a conversation so that the next turn's rendering begins with this one and its answer.
func render(system, tools json.RawMessage, messages []message) []byte {
	var b bytes.Buffer
	if len(tools) > 0 && string(tools) != "null" {
		turn(&b, "tools", tools)
	}
	if len(system) > 0 && string(system) != "null" {
		turn(&b, "system", system)
	}
	for _, m := range messages {
		role := m.Role
		if role == "" {
			role = m.Type
		}
		turn(&b, role, m.Content, m.ToolCalls, m.Output, quoted(m.ToolCallID), quoted(m.Name), quoted(m.Arguments))
	}
	b.WriteString("<|assistant|>\n")
	return b.Bytes()
}

func quoted(s string) json.RawMessage { return json.RawMessage(s) }

func turn(b *bytes.Buffer, role string, parts ...json.RawMessage) {
	b.WriteString("<|" + role + "|>\n")
	for _, part := range parts {
		text(b, part)
	}
	b.WriteString("<|end|>\n")
}

// text writes what a content says: a string, a list of parts, or else the JSON as it is.
func text(b *bytes.Buffer, content json.RawMessage) {
	if len(content) == 0 || string(content) == "null" {
		return
	}
	var plain string
	if content[0] == '"' && json.Unmarshal(content, &plain) == nil {
		b.WriteString(plain)
		return
	}
	var parts []json.RawMessage
	if content[0] != '[' || json.Unmarshal(content, &parts) != nil {
		b.Write(content)
		return
	}
	for _, raw := range parts {
		var part struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal(raw, &part) == nil && part.Text != nil {
			b.WriteString(*part.Text)
			continue
		}
		b.Write(raw)
	}
}

// inputs reads a completion prompt or an embedding input: a string, strings, token ids, or lists of token ids.
func inputs(param string, raw json.RawMessage) ([][]byte, error) {
	var one string
	var strings []string
	var ids []uint32
	var lists [][]uint32
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, badRequest(param, "%s is missing", param)
	case json.Unmarshal(raw, &one) == nil:
		return [][]byte{[]byte(one)}, nil
	case json.Unmarshal(raw, &strings) == nil && len(strings) > 0:
		out := make([][]byte, 0, len(strings))
		for _, s := range strings {
			out = append(out, []byte(s))
		}
		return out, nil
	case json.Unmarshal(raw, &ids) == nil && len(ids) > 0:
		return [][]byte{idBytes(ids)}, nil
	case json.Unmarshal(raw, &lists) == nil && len(lists) > 0:
		out := make([][]byte, 0, len(lists))
		for _, l := range lists {
			out = append(out, idBytes(l))
		}
		return out, nil
	}
	return nil, badRequest(param, "%s: a string, strings, token ids or lists of token ids are expected", param)
}

// idBytes makes each token id four bytes: one token of ours.
func idBytes(ids []uint32) []byte {
	out := make([]byte, 0, len(ids)*TokenBytes)
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, id)
	}
	return out
}
