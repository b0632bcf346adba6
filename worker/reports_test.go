package worker

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

// TestReports: a door that asks for it is told in a header what a whole answer used, and of no other answer. What an engine says
// in that header is nobody's word.
func TestReports(t *testing.T) {
	const answer = `{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(usageHeader, "bytes=1 from=none")
		said, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(said), "stream"):
			sse(w, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n")
		case strings.Contains(string(said), "large"):
			_, _ = io.WriteString(w, strings.Repeat(" ", maxWhole)+answer)
		case strings.Contains(string(said), "wrong"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}
	}), nil)
	for i, c := range []struct {
		name, body string
		asks       bool
		want       string
	}{
		{"whole", chatBody, true, fmt.Sprintf("bytes=%d prompt=7 completion=3 from=engine", len(answer))},
		{"nobody asks", chatBody, false, ""},
		{"stream", streamBody, true, ""},
		{"too large to be held", strings.Replace(chatBody, "[]", `["large"]`, 1), true, ""},
		{"an error", strings.Replace(chatBody, "[]", `["wrong"]`, 1), true, ""},
	} {
		id := fmt.Sprint("a", i)
		token := s.door.minter.Mint(identity.Context{Admission: id, Key: "k", Team: "t", Model: "m", Endpoint: "large", Reports: c.asks}, time.Now())
		resp, _ := s.do(t, s.request(t, t.Context(), id, "/v1/chat/completions", c.body, contextHeader, token))
		if got := strings.Join(resp.Header.Values(usageHeader), ","); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if _, ok := openai.ParseReported(c.want); ok != (c.want != "") {
			t.Errorf("%s: a door would not read %q", c.name, c.want)
		}
	}
}
