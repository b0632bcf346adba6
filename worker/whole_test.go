package worker

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWholeAnswersAreNoted: those that came whole, the engine's and our own, but for our refusals. What an engine says in that header
// is nobody's word.
func TestWholeAnswersAreNoted(t *testing.T) {
	const answer = `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	const used = `{"prompt_tokens":7,"completion_tokens":3,"terminal":true,"bytes":%d}`
	type answered struct {
		with func(w http.ResponseWriter)
		note string // with the length of the body
	}
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, s) }
	}
	answers := map[string]answered{
		"small":                                {text(answer), used},
		"stream":                               {func(w http.ResponseWriter) { sse(w, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n") }, "stream"},
		"whole, though a stream was asked for": {text(answer), used},
		"medium":                               {text(strings.Repeat(" ", maxWhole-len(answer)-1) + answer), used},
		"large":                                {text(strings.Repeat(" ", maxWhole) + answer), ""},
		"error":                                {text(`{"error":{"message":"no"}}`), `{"terminal":true,"failed":true,"bytes":%d}`},
		"refusal": {func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		}, `{"terminal":true,"failed":true,"bytes":%d}`},
		"refusal in HTML": {func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `<h1>`)
		}, `{"terminal":true,"failed":true,"bytes":%d}`},
		"usage as a text": {text(strings.Replace(answer, "7", `"7"`, 1)), `{"completion_tokens":3,"terminal":true,"anomalies":["bad_usage"],"bytes":%d}`},
		"no usage":        {text(`{"choices":[]}`), `{"terminal":true,"bytes":%d}`},
		"not UTF-8":       {text(strings.Replace(answer, `"a"`, "\"\xff\"", 1)), used},
		"cut":             {text(answer[:20]), `{"terminal":true,"failed":true,"cut":true,"bytes":%d}`},
	}
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(noteHeader, "{}")
		w.Header().Set("Content-Type", "application/json")
		said, _ := io.ReadAll(r.Body)
		for name, answer := range answers {
			if strings.Contains(string(said), `["`+name+`"]`) {
				answer.with(w)
			}
		}
	}), nil)
	for name, answer := range answers {
		body := chatBody
		if strings.Contains(name, "stream") {
			body = streamBody
		}
		body = strings.Replace(body, "[]", `["`+name+`"]`, 1)
		resp, got := s.do(t, s.request(t, t.Context(), name, "/v1/chat/completions", body))
		want := answer.note
		if strings.Contains(want, "%d") {
			want = fmt.Sprintf(want, len(got))
		}
		if got := strings.Join(resp.Header.Values(noteHeader), ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	refusalIsNotNoted(t, s)
}

// refusalIsNotNoted: of what the shim refuses nothing was used.
func refusalIsNotNoted(t *testing.T, s *shim) {
	t.Helper()
	resp, err := s.client.Post("http://"+s.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Values(noteHeader); len(got) > 0 || resp.Header.Get(refusedHeader) == "" {
		t.Errorf("our refusal: %q", got)
	}
}
