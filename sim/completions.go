package sim

import (
	"encoding/json"
	"net/http"
	"time"
)

// defaultCompletion is what text completions generate without a limit: the API's own default.
const defaultCompletion = 16

type completionsRequest struct {
	Model         string          `json:"model"`
	Prompt        json.RawMessage `json:"prompt"`
	Stream        bool            `json:"stream"`
	StreamOptions streamOptions   `json:"stream_options"`
	MaxTokens     *int64          `json:"max_tokens"`
	N             *int            `json:"n"`
	Stop          stringList      `json:"stop"`
	CacheSalt     string          `json:"cache_salt"`
	Transfer      *transfer       `json:"kv_transfer_params"`
}

type textChoice struct {
	Index    int       `json:"index"`
	Text     string    `json:"text"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

func (s *Sim) completions(w http.ResponseWriter, r *http.Request, e *entry, body []byte) error {
	var q completionsRequest
	if err := decode(body, &q); err != nil {
		return err
	}
	if err := s.admit(e, q.Model, q.Stream); err != nil {
		return err
	}
	j, err := s.completionsJob(e, &q)
	if err != nil {
		return err
	}
	e.moved(q.Transfer)
	head := completionObject{ID: newID("cmpl-"), Object: "text_completion", Created: time.Now().Unix(), Model: q.Model, Fingerprint: fingerprint}
	if q.Stream {
		return s.streamCompletion(w, r, j, head, q.StreamOptions, textDelta{})
	}
	made, err := s.collect(r, j)
	if err != nil {
		return err
	}
	list := make([]textChoice, len(made))
	for i, text := range made {
		list[i] = textChoice{Index: i, Text: text, Finish: &j.answers[i].finish}
	}
	head.Choices, head.Usage, head.Transfer = list, j.usage().object(), q.Transfer.kept(j)
	reply(w, http.StatusOK, head)
	return nil
}

func (s *Sim) completionsJob(e *entry, q *completionsRequest) (*job, error) {
	prompts, err := inputs("prompt", q.Prompt)
	if err != nil {
		return nil, err
	}
	n, err := choices(q.N)
	if err != nil {
		return nil, err
	}
	if n*len(prompts) > maxChoices {
		return nil, badRequest("prompt", "prompts times n: at most %d expected", maxChoices)
	}
	most, err := limit(q.MaxTokens)
	if err != nil {
		return nil, err
	}
	if most < 0 {
		most = defaultCompletion
	}
	room, err := s.room(prompts...)
	if err != nil {
		return nil, err
	}
	j := &job{entry: e, root: rootOf(q.Model, q.CacheSalt), salt: q.CacheSalt, prompts: prompts}
	for _, prompt := range prompts {
		answers, err := wish{}.answers(j.root, prompt, n, ask{most, room, q.Stop})
		if err != nil {
			return nil, err
		}
		j.answers = append(j.answers, answers...)
	}
	return j, nil
}

type textDelta struct{}

func (textDelta) opening(int) any { return nil }

func (textDelta) token(t token, finish *string) any {
	return textChoice{Index: t.choice, Text: t.text, Finish: finish}
}
