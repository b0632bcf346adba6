package test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spokegate/spokegate/sim"
)

// verdict is what a client made of the answer that it got.
type verdict string

const (
	whole200 verdict = "whole"   // every word of it
	told     verdict = "told"    // a part, and the error event that is reserved for a broken engine
	refused  verdict = "refused" // an error in OpenAI's form
	cutOff   verdict = "cut"     // the connection was cut, after a part or before
	leftIt   verdict = "left"    // the client itself left
	wrong    verdict = "wrong"   // anything else, and that may never be
)

// question is one request of a load, and the whole answer to it.
type question struct {
	path, body string
	stream     bool
	want       string // the text
	tokens     int64
}

// questions are streams and short requests of two operations. What the answers must say is asked of a simulated engine in
// this process, which gives equal requests equal text.
var questions = sync.OnceValue(func() []question {
	fast := sim.Rates{PrefillTokensPerSecond: 1e9, DecodeTokensPerSecond: 1e9, CacheBlocks: 1024, MaxRunning: 8, ContextTokens: 1 << 20}
	oracle, err := sim.New(sim.Config{Rates: fast, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	var out []question
	for i := range 24 {
		q := question{path: "/v1/chat/completions", stream: i%3 > 0, tokens: int64(3 + i*2)}
		if q.stream {
			q.tokens = int64(20 + i*12) // up to a second
		}
		prompt := fmt.Sprintf(`"messages":[{"role":"user","content":"question %d: %s"}]`, i, strings.Repeat("why ", i*20))
		if i%4 == 3 {
			q.path, prompt = "/v1/completions", fmt.Sprintf(`"prompt":"say %d"`, i)
		}
		q.body = fmt.Sprintf(`{"model":"sim-small","max_tokens":%d,"stream":%t,%s}`, q.tokens, q.stream, prompt)
		req := httptest.NewRequest(http.MethodPost, q.path, strings.NewReader(q.body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		oracle.ServeHTTP(rec, req)
		a, err := q.read(rec.Body.Bytes())
		if err != nil || !a.ended || rec.Code != http.StatusOK {
			panic(fmt.Sprintf("the simulator answers %d %v: %s", rec.Code, err, rec.Body))
		}
		q.want = a.text
		out = append(out, q)
	}
	return out
})

// answer is what a body says.
type answer struct {
	text  string
	ended bool // by [DONE]; a JSON body is whole or an error
	told  bool // the reserved error event was the last
}

// read takes a body that may be cut anywhere. An error is something that no engine sent.
func (q question) read(body []byte) (answer, error) {
	if !q.stream {
		text, _, err := textOf(body)
		return answer{text: text, ended: err == nil}, err
	}
	var a answer
	lines := strings.SplitAfter(string(body), "\n")
	for _, line := range lines {
		data, isData := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data: ")
		switch {
		case !strings.HasSuffix(line, "\n"), line == "\n", strings.HasPrefix(line, ":"): // cut, the end of an event, a comment
		case !isData:
			return a, fmt.Errorf("no event: %q", line)
		case a.ended || a.told:
			return a, fmt.Errorf("%q after the end", line)
		case data == "[DONE]":
			a.ended = true
		default:
			text, code, err := textOf([]byte(data))
			if err != nil || code != "" && code != "upstream_cut" {
				return a, fmt.Errorf("event %q: %w", data, err)
			}
			a.text += text
			a.told = code != ""
		}
	}
	return a, nil
}

// textOf reads an object of either operation, streamed or not; or an error's code.
func textOf(object []byte) (text, code string, err error) {
	var o struct {
		Choices []struct {
			Text           string
			Delta, Message struct{ Content string }
		}
		Error *struct{ Code string }
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return "", "", err
	}
	if o.Error != nil {
		return "", o.Error.Code, nil
	}
	if o.Choices == nil {
		return "", "", fmt.Errorf("neither choices nor error in %s", object)
	}
	for _, c := range o.Choices {
		text += c.Text + c.Delta.Content + c.Message.Content
	}
	return text, "", nil
}

// judge says what an answer is worth. broke: the error by which it ended.
func (q question) judge(r reply, broke error) (verdict, error) {
	switch {
	case r.status == 0:
		return cutOff, broke
	case r.status >= 400 && broke == nil:
		if err := checkRefusal(r, q.path, ""); err != nil {
			return wrong, err
		}
		return refused, fmt.Errorf("%v", r)
	case r.status >= 400 || broke != nil && !q.stream:
		return cutOff, broke
	case r.status != http.StatusOK:
		return wrong, fmt.Errorf("%v", r)
	}
	a, err := q.read(r.body)
	switch {
	case err != nil:
		return wrong, err
	case !strings.HasPrefix(q.want, a.text):
		return wrong, fmt.Errorf("want the beginning of %q, got %q", q.want, a.text)
	case broke != nil:
		return cutOff, fmt.Errorf("after %d of %d bytes of text: %w", len(a.text), len(q.want), broke)
	case a.told:
		return told, fmt.Errorf("upstream_cut after %d of %d bytes of text", len(a.text), len(q.want))
	case !a.ended || a.text != q.want:
		return wrong, fmt.Errorf("it came to an orderly end, and is not whole: want %q, got %q", q.want, r.body)
	}
	return whole200, nil
}

// TestVerdicts shows that a wrong answer would be found.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	q := question{path: "/v1/chat/completions", stream: true, want: "one two"}
	event := func(text string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", text)
	}
	const broken, done = "data: {\"error\":{\"code\":\"upstream_cut\"}}\n\n", "data: [DONE]\n\n"
	for name, c := range map[string]struct {
		status int
		body   string
		broke  error
		want   verdict
	}{
		"whole":            {200, event("one ") + ": a comment\n" + event("two") + done, nil, whole200},
		"no end":           {200, event("one ") + event("two"), nil, wrong},
		"a word is gone":   {200, event("one ") + done, nil, wrong},
		"another word":     {200, event("one ") + event("too") + done, nil, wrong},
		"a word twice":     {200, event("one ") + event("one ") + event("two") + done, nil, wrong},
		"more than all":    {200, event("one two") + done + event("two"), nil, wrong},
		"empty":            {200, "", nil, wrong},
		"told":             {200, event("one ") + broken, nil, told},
		"told and goes on": {200, event("one ") + broken + event("two"), nil, wrong},
		"cut":              {200, event("one ") + "data: {\"cho", io.ErrUnexpectedEOF, cutOff},
		"cut, other words": {200, event("uno ") + "data: {\"cho", io.ErrUnexpectedEOF, wrong},
		"nothing":          {0, "", io.ErrUnexpectedEOF, cutOff},
		"plain text":       {503, "no healthy upstream", nil, wrong},
	} {
		got, why := q.judge(reply{c.status, http.Header{}, []byte(c.body)}, c.broke)
		if got != c.want {
			t.Errorf("%s: want %s, got %s: %v", name, c.want, got, why)
		}
	}
}
