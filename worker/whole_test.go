package worker

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWholeAnswersAreMarked: small ones that came whole, and no others. What an engine says in that header is nobody's word.
func TestWholeAnswersAreMarked(t *testing.T) {
	const answer = `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	answers := map[string]func(w http.ResponseWriter){
		"small":                                func(w http.ResponseWriter) { _, _ = io.WriteString(w, answer) },
		"stream":                               func(w http.ResponseWriter) { sse(w, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n") },
		"whole, though a stream was asked for": func(w http.ResponseWriter) { _, _ = io.WriteString(w, answer) },
		"medium":                               func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat(" ", maxRead)+answer) },
		"large":                                func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat(" ", maxWhole)+answer) },
		"error":                                func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"error":{"message":"no"}}`) },
		"refusal": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		},
		"usage as a text": func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Replace(answer, "7", `"7"`, 1)) },
		"no usage":        func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"choices":[]}`) },
		"NaN":             func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Replace(answer, `"a"`, "[NaN]", 1)) },
		"not UTF-8":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Replace(answer, `"a"`, "\"\xff\"", 1)) },
	}
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wholeHeader, "bytes=1")
		w.Header().Set("Content-Type", "application/json")
		said, _ := io.ReadAll(r.Body)
		for name, answer := range answers {
			if strings.Contains(string(said), `["`+name+`"]`) {
				answer(w)
			}
		}
	}), nil)
	for name := range answers {
		body := chatBody
		if strings.Contains(name, "stream") {
			body = streamBody
		}
		body = strings.Replace(body, "[]", `["`+name+`"]`, 1)
		want := ""
		if name == "small" {
			want = fmt.Sprintf("bytes=%d", len(answer))
		}
		resp, _ := s.do(t, s.request(t, t.Context(), name, "/v1/chat/completions", body))
		if got := strings.Join(resp.Header.Values(wholeHeader), ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
