package sim

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// refusal is an answer that is not 200.
type refusal struct {
	status               int
	code, param, message string
}

func (r *refusal) Error() string { return r.message }

func badRequest(param, format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "invalid_body", param, fmt.Sprintf(format, args...)}
}

func noModel(model string) *refusal {
	return &refusal{http.StatusNotFound, "model_not_found", "model", fmt.Sprintf("The model %.64q does not exist on this simulator.", model)}
}

// fail answers in the dialect of the path.
func fail(w http.ResponseWriter, path string, r *refusal) {
	if isMessages(path) {
		kind := "invalid_request_error"
		if r.status == http.StatusNotFound {
			kind = "not_found_error"
		}
		reply(w, r.status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": r.message}})
		return
	}
	var param any
	if r.param != "" {
		param = r.param
	}
	reply(w, r.status, map[string]any{"error": map[string]any{
		"message": r.message, "type": "invalid_request_error", "param": param, "code": r.code}})
}

func (s *Sim) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &refusal{http.StatusRequestEntityTooLarge, "body_too_large", "", fmt.Sprintf("body above %d bytes", tooLarge.Limit)}
	case err != nil:
		return nil, badRequest("", "body not read: %v", err)
	}
	return body, nil
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest("", "body: %v", err)
	}
	return nil
}

// admit checks what all operations have in common and fills the account.
func (s *Sim) admit(e *entry, model string, stream bool) error {
	e.model, e.stream = model, stream
	if model == "" {
		return badRequest("model", "model: a name is expected")
	}
	if !s.serves(model) {
		return noModel(model)
	}
	return nil
}

// room says how many tokens may follow the prompts.
func (s *Sim) room(prompts ...[]byte) (int64, error) {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p))
	}
	room := s.cfg.Rates.ContextTokens - tokensOf(longest)
	if room < 0 {
		return 0, badRequest("", "the prompt of %d tokens is above the context of %d tokens", tokensOf(longest), s.cfg.Rates.ContextTokens)
	}
	return room, nil
}

// strings is a JSON string, a list of strings, or null.
type stringList []string

func (l *stringList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = nil
		if string(data) != "null" {
			*l = stringList{one}
		}
		return nil
	}
	var many []string
	err := json.Unmarshal(data, &many)
	*l = slices.DeleteFunc(many, func(s string) bool { return s == "" })
	return err
}

// limit is the first that is given; negative: none.
func limit(limits ...*int64) (int64, error) {
	for _, l := range limits {
		if l == nil {
			continue
		}
		if *l < 0 {
			return 0, badRequest("max_tokens", "the token limit is below 0")
		}
		return *l, nil
	}
	return -1, nil
}

// newID is unique, and carries nothing of the request.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// sse writes events, each at once.
type sse struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// newSSE sends the headers before the first token is there, as real engines do.
func newSSE(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	s := &sse{w, http.NewResponseController(w)}
	_ = s.rc.Flush() // a client that has left shows at the first event
	return s
}

// data sends one event without a name.
func (s *sse) data(v any) error { return s.event("", v) }

// event sends one event; v is marshalled unless it is a string.
func (s *sse) event(name string, v any) error {
	text, isText := v.(string)
	if !isText {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = string(b)
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := io.WriteString(s.w, name+"data: "+text+"\n\n"); err != nil {
		return err
	}
	return s.rc.Flush()
}
