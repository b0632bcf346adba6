package sim

import "net/http"

// deltas make the choices of a chunk; chat and text completions differ only in these.
type deltas interface {
	opening(choice int) any // nil: no chunk before the first token
	token(t token, finish *string) any
}

// streamCompletion sends the chunks of chat or text completions, with usage where the options ask for it.
func (s *Sim) streamCompletion(w http.ResponseWriter, r *http.Request, j *job, head completionObject, o streamOptions, d deltas) error {
	out := newSSE(w)
	running := o.IncludeUsage && o.ContinuousUsage
	send := func(choice any, completion int64) error {
		chunk := head
		chunk.Choices = []any{choice}
		if running {
			chunk.Usage = runningUsage(j.entry.prompt.Load(), completion)
		}
		return out.data(chunk)
	}
	err := s.run(r.Context(), j, listener{
		started: func() error { return openAll(j, d, send) },
		token: func(t token) error {
			var finish *string
			if t.last {
				finish = &j.answers[t.choice].finish
			}
			return send(d.token(t, finish), t.at+1)
		},
	})
	if err != nil {
		return err
	}
	if o.IncludeUsage {
		head.Choices, head.Usage = []any{}, j.usage().object()
		if err := out.data(head); err != nil {
			return err
		}
	}
	return out.data("[DONE]")
}

// openAll sends what comes before the tokens. An answer of no tokens ends here.
func openAll(j *job, d deltas, send func(any, int64) error) error {
	for i := range j.answers {
		if choice := d.opening(i); choice != nil {
			if err := send(choice, 0); err != nil {
				return err
			}
		}
		if a := &j.answers[i]; a.tokens == 0 {
			if err := send(d.token(token{choice: i, last: true}, &a.finish), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

type chatDelta struct{ *job }

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type deltaChoice struct {
	Index    int       `json:"index"`
	Delta    delta     `json:"delta"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

func (d chatDelta) opening(i int) any {
	a := &d.answers[i]
	if a.call == "" {
		return deltaChoice{Index: i, Delta: delta{Role: "assistant", Content: new(string)}}
	}
	return deltaChoice{Index: i, Delta: delta{Role: "assistant", ToolCalls: []toolCall{
		{Index: new(int), ID: newID("call_"), Type: "function", Function: functionCall{Name: a.call}}}}}
}

func (d chatDelta) token(t token, finish *string) any {
	c := deltaChoice{Index: t.choice, Finish: finish}
	if d.answers[t.choice].call == "" {
		c.Delta.Content = &t.text
	} else {
		c.Delta.ToolCalls = []toolCall{{Index: new(int), Function: functionCall{Arguments: t.text}}}
	}
	return c
}
