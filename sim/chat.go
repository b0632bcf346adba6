package sim

import (
	"encoding/json"
	"net/http"
	"time"
)

const fingerprint = "simulator"

// maxChoices bounds n.
const maxChoices = 128

// streamOptions as vLLM has them: usage in a last chunk, and running usage on every chunk.
type streamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

type chatRequest struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	Stream        bool            `json:"stream"`
	StreamOptions streamOptions   `json:"stream_options"`
	MaxTokens     *int64          `json:"max_tokens"`
	MaxCompletion *int64          `json:"max_completion_tokens"`
	N             *int            `json:"n"`
	Stop          stringList      `json:"stop"`
	Tools         json.RawMessage `json:"tools"`
	ToolChoice    toolChoice      `json:"tool_choice"`
	Format        *format         `json:"response_format"`
	CacheSalt     string          `json:"cache_salt"`
	Transfer      *transfer       `json:"kv_transfer_params"`
}

type usageObject struct {
	Prompt     int64          `json:"prompt_tokens"`
	Total      int64          `json:"total_tokens"`
	Completion int64          `json:"completion_tokens"`
	Details    *promptDetails `json:"prompt_tokens_details,omitempty"`
}

type promptDetails struct {
	Cached int64 `json:"cached_tokens"`
}

func (u usage) object() *usageObject {
	return &usageObject{u.prompt, u.prompt + u.completion, u.completion, &promptDetails{u.cached}}
}

// runningUsage is what a chunk carries: as in vLLM without details, and of its own choice only.
func runningUsage(prompt, completion int64) *usageObject {
	return &usageObject{Prompt: prompt, Total: prompt + completion, Completion: completion}
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatMessage struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type chatChoice struct {
	Index    int         `json:"index"`
	Message  chatMessage `json:"message"`
	Logprobs *struct{}   `json:"logprobs"`
	Finish   string      `json:"finish_reason"`
}

// completionObject is the body of chat and text completions, whole or a chunk.
type completionObject struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     any          `json:"choices"`
	Usage       *usageObject `json:"usage,omitempty"`
	Transfer    *transfer    `json:"kv_transfer_params,omitempty"`
}

func (s *Sim) chat(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error {
	var q chatRequest
	if err := decode(body, &q); err != nil {
		return err
	}
	if err := s.admit(e, q.Model, q.Stream); err != nil {
		return err
	}
	j, err := s.chatJob(e, &q)
	if err != nil {
		return err
	}
	e.moved(q.Transfer)
	head := completionObject{ID: newID("chatcmpl-"), Object: "chat.completion", Created: time.Now().Unix(), Model: q.Model, Fingerprint: fingerprint}
	if q.Stream {
		head.Object = "chat.completion.chunk"
		return s.streamCompletion(w, r, j, head, q.StreamOptions, chatDelta{j})
	}
	made, err := s.collect(r, j)
	if err != nil {
		return err
	}
	choices := make([]chatChoice, len(j.answers))
	for i := range j.answers {
		choices[i] = chatChoice{Index: i, Message: chatAnswer(&j.answers[i], made[i]), Finish: j.answers[i].finish}
	}
	head.Choices, head.Usage, head.Transfer = choices, j.usage().object(), q.Transfer.kept(j)
	reply(w, http.StatusOK, head)
	return nil
}

func (s *Sim) chatJob(e *entry, q *chatRequest) (*job, error) {
	var tools []tool
	if len(q.Tools) > 0 {
		if err := decode(q.Tools, &tools); err != nil {
			return nil, err
		}
	}
	n, err := choices(q.N)
	if err != nil {
		return nil, err
	}
	most, err := limit(q.MaxCompletion, q.MaxTokens)
	if err != nil {
		return nil, err
	}
	prompt := render(nil, q.Tools, q.Messages)
	room, err := s.room(prompt)
	if err != nil {
		return nil, err
	}
	root := rootOf(q.Model, q.CacheSalt)
	answers, err := wish{tools, q.ToolChoice, q.Format}.answers(root, prompt, n, ask{most, room, q.Stop})
	return &job{e, root, q.CacheSalt, [][]byte{prompt}, answers}, err
}

func choices(n *int) (int, error) {
	switch {
	case n == nil:
		return 1, nil
	case *n < 1 || *n > maxChoices:
		return 0, badRequest("n", "n: 1 to %d expected", maxChoices)
	}
	return *n, nil
}

func chatAnswer(a *script, text string) chatMessage {
	if a.call == "" {
		return chatMessage{Role: "assistant", Content: &text}
	}
	return chatMessage{Role: "assistant", ToolCalls: []toolCall{
		{ID: newID("call_"), Type: "function", Function: functionCall{a.call, text}}}}
}

// collect runs a job to its end and gives the text of each answer.
func (s *Sim) collect(r *http.Request, j *job) ([]string, error) {
	if err := s.run(r.Context(), j, listener{token: func(token) error { return nil }}); err != nil {
		return nil, err
	}
	texts := make([]string, len(j.answers))
	for i := range j.answers {
		texts[i] = j.answers[i].text(j.answers[i].tokens)
	}
	return texts, nil
}
