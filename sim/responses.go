package sim

import (
	"encoding/json"
	"net/http"
	"time"
)

type responsesRequest struct {
	Model        string          `json:"model"`
	Input        json.RawMessage `json:"input"`
	Instructions json.RawMessage `json:"instructions"`
	Stream       bool            `json:"stream"`
	MaxTokens    *int64          `json:"max_output_tokens"`
	Tools        json.RawMessage `json:"tools"`
	ToolChoice   toolChoice      `json:"tool_choice"`
	Text         struct {
		Format *format `json:"format"`
	} `json:"text"`
}

// responseObject is the whole response; null where the simulator has nothing to say.
type responseObject struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Created      int64           `json:"created_at"`
	Status       string          `json:"status"`
	Error        *struct{}       `json:"error"`
	Incomplete   any             `json:"incomplete_details"`
	Instructions json.RawMessage `json:"instructions"`
	MaxTokens    *int64          `json:"max_output_tokens"`
	Model        string          `json:"model"`
	Output       []any           `json:"output"`
	Parallel     bool            `json:"parallel_tool_calls"`
	Previous     *string         `json:"previous_response_id"`
	Store        bool            `json:"store"`
	Temperature  float64         `json:"temperature"`
	Text         any             `json:"text"`
	ToolChoice   string          `json:"tool_choice"`
	Tools        json.RawMessage `json:"tools"`
	TopP         float64         `json:"top_p"`
	Truncation   string          `json:"truncation"`
	Usage        *responsesUsage `json:"usage"`
	Metadata     struct{}        `json:"metadata"`
	Simulator    bool            `json:"simulator"`
}

type responsesUsage struct {
	Input        int64           `json:"input_tokens"`
	InputDetails promptDetails   `json:"input_tokens_details"`
	Output       int64           `json:"output_tokens"`
	Details      reasoningDetail `json:"output_tokens_details"`
	Total        int64           `json:"total_tokens"`
}

type reasoningDetail struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// outputItem is a message or a function call.
type outputItem struct {
	ID        string       `json:"id"`
	Type      string       `json:"type"`
	Status    string       `json:"status"`
	Role      string       `json:"role,omitempty"`
	Content   []outputText `json:"content,omitempty"`
	CallID    string       `json:"call_id,omitempty"`
	Name      string       `json:"name,omitempty"`
	Arguments *string      `json:"arguments,omitempty"`
}

type outputText struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

func (s *Sim) responses(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error {
	var q responsesRequest
	if err := decode(body, &q); err != nil {
		return err
	}
	if err := s.admit(e, q.Model, q.Stream); err != nil {
		return err
	}
	j, err := s.responsesJob(e, &q)
	if err != nil {
		return err
	}
	made := newResponse(&q, &j.answers[0])
	if q.Stream {
		return s.streamResponse(w, r, j, made)
	}
	texts, err := s.collect(r, j)
	if err != nil {
		return err
	}
	made.finish(j, texts[0])
	reply(w, http.StatusOK, made.object)
	return nil
}

func (s *Sim) responsesJob(e *entry, q *responsesRequest) (*job, error) {
	var tools []tool
	if len(q.Tools) > 0 {
		if err := decode(q.Tools, &tools); err != nil {
			return nil, err
		}
	}
	messages, err := items(q.Input)
	if err != nil {
		return nil, err
	}
	most, err := limit(q.MaxTokens)
	if err != nil {
		return nil, err
	}
	prompt := render(q.Instructions, q.Tools, messages)
	room, err := s.room(prompt)
	if err != nil {
		return nil, err
	}
	root := rootOf(q.Model, "")
	answers, err := wish{tools, q.ToolChoice, q.Text.Format}.answers(root, prompt, 1, ask{max: most, room: room})
	return &job{e, root, "", [][]byte{prompt}, answers}, err
}

// items reads an input: a string is one user message.
func items(input json.RawMessage) ([]message, error) {
	var list []message
	if len(input) > 0 && input[0] == '[' {
		return list, decode(input, &list)
	}
	if len(input) == 0 || string(input) == "null" {
		return nil, nil
	}
	return []message{{Role: "user", Content: input}}, nil
}

// response is a response in the making: its one output item, and the object around it.
type response struct {
	object responseObject
	item   outputItem
	script *script
}

func newResponse(q *responsesRequest, a *script) *response {
	tools := q.Tools
	if len(tools) == 0 {
		tools = json.RawMessage("[]")
	}
	r := &response{script: a, object: responseObject{
		ID: newID("resp_"), Object: "response", Created: time.Now().Unix(), Status: "in_progress", Instructions: q.Instructions,
		MaxTokens: q.MaxTokens, Model: q.Model, Output: []any{}, Parallel: true, Temperature: 1, TopP: 1, Tools: tools,
		Text: map[string]any{"format": map[string]string{"type": "text"}}, ToolChoice: "auto", Truncation: "disabled", Simulator: true}}
	if a.call != "" {
		r.item = outputItem{ID: newID("fc_"), Type: "function_call", Status: "in_progress", CallID: newID("call_"), Name: a.call, Arguments: new(string)}
	} else {
		r.item = outputItem{ID: newID("msg_"), Type: "message", Status: "in_progress", Role: "assistant"}
	}
	return r
}

func textPart(text string) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []any{}, Logprobs: []any{}}
}

// finish puts the text and the usage in.
func (r *response) finish(j *job, text string) {
	r.object.Status, r.item.Status = "completed", "completed"
	if r.script.finish == "length" {
		r.object.Status, r.item.Status = "incomplete", "incomplete"
		r.object.Incomplete = map[string]string{"reason": "max_output_tokens"}
	}
	if r.script.call != "" {
		r.item.Arguments = &text
	} else {
		r.item.Content = []outputText{textPart(text)}
	}
	r.object.Output = []any{r.item}
	u := j.usage()
	r.object.Usage = &responsesUsage{u.prompt, promptDetails{u.cached}, u.completion, reasoningDetail{}, u.prompt + u.completion}
}
