package prompt_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/prompt"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// parse reads a rendering of plain messages back. That it can shows that nothing in a text is taken for a mark.
func parse(t *testing.T, rendering string) (model string, ms []message) {
	t.Helper()
	parts := strings.Split(rendering, "\xFB")
	for _, p := range parts[1:] {
		role, content, ok := strings.Cut(p, "\xFC")
		if !ok || !strings.HasSuffix(content, "\xFF") {
			t.Fatalf("no message: %q", p)
		}
		ms = append(ms, message{role, strings.TrimSuffix(content, "\xFF")})
	}
	return strings.TrimPrefix(parts[0], "\xF8"), ms
}

// conversation cuts the fuzzer's bytes into messages: a zero byte ends a message, the byte after it chooses the role.
func conversation(data []byte) []message {
	roles := []string{"system", "user", "assistant", "tool", "", "us\"er\\", "\x00", "role é"}
	var ms []message
	for _, d := range bytes.Split(data, []byte{0}) {
		m := message{Role: roles[0]}
		if len(d) > 0 {
			m = message{roles[int(d[0])%len(roles)], string(bytes.ToValidUTF8(d[1:], []byte("\uFFFD")))}
		}
		ms = append(ms, m)
	}
	return ms
}

// FuzzTurns: the rendering of each turn is a prefix of the next one's, and says who said what.
func FuzzTurns(f *testing.F) {
	f.Add([]byte("\x00\x01hello\x00\x02hi there\x00\x01\"quoted\" \\u0041"))
	f.Add([]byte("\x01\x1f\xff\xfe\xf8\x00\x05\xf0\x9f\x98\x80"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		all, last := conversation(data), ""
		for n := 1; n <= min(len(all), 50); n++ {
			body, err := json.Marshal(map[string]any{"model": "m", "messages": all[:n], "max_tokens": n})
			if err != nil {
				t.Fatal(err)
			}
			got := render(t, openai.Chat, string(body))
			if !strings.HasPrefix(got, last) {
				t.Fatalf("turn %d does not begin with the one before\n%q\n%q", n, last, got)
			}
			if model, ms := parse(t, got); model != "m" || !slices.Equal(ms, all[:n]) {
				t.Fatalf("rendered %q, read back as %q, %+v", all[:n], model, ms)
			}
			last = got
		}
	})
}

// FuzzBody: whatever the scanner accepts is rendered, the same each time, and grows with its messages.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"x"}]}]}`,
		`{"model":"m","messages":[1,"a",null,[],{"role":null,"content":{}}]}`,
		`{"model":"m","prompt":["a",1,[2]],"suffix":null}`,
		`{"model":"m","input":[{"a":"\ud83d\ude00"}],"tools":[],"system":[[]]}`,
		`{"model":"m","input":"\ud800"}`,
	} {
		f.Add([]byte(seed), []byte(`{"role":"user","content":"more"}`))
	}
	f.Fuzz(func(t *testing.T, body, more []byte) {
		for op := openai.Chat; op <= openai.Messages; op++ {
			req, err := openai.Scan(op, body)
			if err != nil {
				return
			}
			got := prompt.Render(nil, op, req, body)
			if !bytes.Equal(got, prompt.Render(nil, op, req, bytes.Clone(body))) {
				t.Fatalf("%s: two renderings of %q", op, body)
			}
			grown := appendTo(req, body, more)
			if req, err = openai.Scan(op, grown); grown == nil || err != nil || op == openai.Completions || op == openai.Embeddings {
				continue
			}
			if next := prompt.Render(nil, op, req, grown); !bytes.HasPrefix(next, got) {
				t.Fatalf("%s: %q does not begin with %q", op, next, got)
			}
		}
	})
}

// appendTo puts one more message at the end of the list of messages, or of input items; nil if there is none.
func appendTo(req *openai.Request, body, more []byte) []byte {
	name := "messages"
	if req.Op == openai.Responses {
		name = "input"
	}
	list, ok := req.Get(name)
	if !ok || list.End-list.Start < 3 || body[list.Start] != '[' {
		return nil
	}
	return slices.Concat(body[:list.End-1], []byte(","), more, body[list.End-1:])
}
