package sim

import (
	"encoding/json"
	"net/http"
)

type messagesRequest struct {
	Model      string          `json:"model"`
	System     json.RawMessage `json:"system"`
	Messages   []message       `json:"messages"`
	Stream     bool            `json:"stream"`
	MaxTokens  *int64          `json:"max_tokens"`
	Stop       stringList      `json:"stop_sequences"`
	Tools      json.RawMessage `json:"tools"`
	ToolChoice toolChoice      `json:"tool_choice"`
}

type messageObject struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"`
	Role         string        `json:"role"`
	Model        string        `json:"model"`
	Content      []any         `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        messagesUsage `json:"usage"`
}

// messagesUsage counts the cached tokens apart from the other input.
type messagesUsage struct {
	Input         int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Output        int64 `json:"output_tokens"`
}

func (u usage) messages() messagesUsage {
	return messagesUsage{u.prompt - u.cached, 0, u.cached, u.completion}
}

func (s *Sim) messages(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error {
	var q messagesRequest
	if err := decode(body, &q); err != nil {
		return err
	}
	if err := s.admit(e, q.Model, q.Stream); err != nil {
		return err
	}
	j, err := s.messagesJob(e, &q)
	if err != nil {
		return err
	}
	head := messageObject{ID: newID("msg_"), Type: "message", Role: "assistant", Model: q.Model, Content: []any{}}
	if q.Stream {
		return s.streamMessage(w, r, j, head)
	}
	texts, err := s.collect(r, j)
	if err != nil {
		return err
	}
	head.Content = []any{contentBlock(&j.answers[0], json.RawMessage(texts[0]), texts[0])}
	head.StopReason, head.StopSequence = stopReason(&j.answers[0])
	head.Usage = j.usage().messages()
	reply(w, http.StatusOK, head)
	return nil
}

func (s *Sim) messagesJob(e *entry, q *messagesRequest) (*job, error) {
	var tools []tool
	if len(q.Tools) > 0 {
		if err := decode(q.Tools, &tools); err != nil {
			return nil, err
		}
	}
	most, err := limit(q.MaxTokens)
	if err != nil {
		return nil, err
	}
	prompt := render(q.System, q.Tools, q.Messages)
	room, err := s.room(prompt)
	if err != nil {
		return nil, err
	}
	root := rootOf(q.Model, "")
	answers, err := wish{tools: tools, choice: q.ToolChoice}.answers(root, prompt, 1, ask{most, room, q.Stop})
	return &job{e, root, "", [][]byte{prompt}, answers}, err
}

// contentBlock is the one block of an answer. Arguments cut short are not JSON: then the input is empty.
func contentBlock(a *script, input json.RawMessage, text string) any {
	if a.call == "" {
		return map[string]any{"type": "text", "text": text}
	}
	if !json.Valid(input) {
		input = json.RawMessage("{}")
	}
	return map[string]any{"type": "tool_use", "id": newID("toolu_"), "name": a.call, "input": input}
}

func stopReason(a *script) (reason, sequence *string) {
	r := "end_turn"
	switch {
	case a.finish == "length":
		r = "max_tokens"
	case a.finish == "tool_calls":
		r = "tool_use"
	case a.stop != "":
		r = "stop_sequence"
		sequence = &a.stop
	}
	return &r, sequence
}

// streamMessage sends the events of the Anthropic API: a message, its one block, the end with the usage.
func (s *Sim) streamMessage(w http.ResponseWriter, r *http.Request, j *job, head messageObject) error {
	out, a := newSSE(w), &j.answers[0]
	send := func(kind string, f fields) error {
		f["type"] = kind
		return out.event(kind, f)
	}
	err := s.run(r.Context(), j, listener{
		started: func() error {
			head.Usage = j.usage().messages()
			if err := send("message_start", fields{"message": head}); err != nil {
				return err
			}
			if err := send("content_block_start", fields{"index": 0, "content_block": contentBlock(a, nil, "")}); err != nil {
				return err
			}
			return send("ping", fields{})
		},
		token: func(t token) error {
			d := map[string]string{"type": "text_delta", "text": t.text}
			if a.call != "" {
				d = map[string]string{"type": "input_json_delta", "partial_json": t.text}
			}
			return send("content_block_delta", fields{"index": 0, "delta": d})
		},
	})
	if err != nil {
		return err
	}
	if err := send("content_block_stop", fields{"index": 0}); err != nil {
		return err
	}
	reason, sequence := stopReason(a)
	if err := send("message_delta", fields{"delta": fields{"stop_reason": reason, "stop_sequence": sequence}, "usage": j.usage().messages()}); err != nil {
		return err
	}
	return send("message_stop", fields{})
}
