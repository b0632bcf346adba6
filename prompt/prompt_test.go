package prompt_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/prompt"
)

func render(t testing.TB, op openai.Op, body string) string {
	t.Helper()
	req, err := openai.Scan(op, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return string(prompt.Render(nil, op, req, []byte(body)))
}

// readable writes the marks as words, so that a rendering can be read in a test.
var readable = strings.NewReplacer(
	"\xF7", "<raw>", "\xF8", "<model>", "\xF9", "<setting>", "\xFA", "<value>", "\xFB", "<message>", "\xFC", "<text>",
	"\xFD", "<member>", "\xFE", "<part>", "\xFF", "<end>",
)

func TestRender(t *testing.T) {
	for _, c := range []struct {
		name string
		op   openai.Op
		body string
		want string
	}{
		{"chat", openai.Chat, `{"temperature":1,"messages":[{"role":"system","content":"Be brief."},{"content":"a\n\u00e9","role":"user"}],"model":"m","user":"u"}`,
			"<model>m<message>system<text>Be brief.<end><message>user<text>a\né<end>"},
		{"chat with tools", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type": "function"}]}`,
			`<model>m<setting>tools<value>[{"type": "function"}]<message>user<text>x<end>`},
		{"chat with a tool call", openai.Chat, `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[1]},{"role":"tool","tool_call_id":"c","content":"42"}]}`,
			`<model>m<message>assistant<member>"tool_calls"<value>[1]<end><message>tool<text>42<member>"tool_call_id"<value>"c"<end>`},
		{"chat with parts", openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}},{"text":"b","type":"text"}]}]}`,
			`<model>m<message>user<text>a<part><member>"type"<value>"image_url"<member>"image_url"<value>{"url":"data:"}<end><text>b<end>`},
		{"chat, strange", openai.Chat, `{"model":"m","messages":["hi",7,{"role":3,"content":{"a":1}},{"role":"user","content":[["x"],null,{"text":5}]},{}]}`,
			`<model>m<message><raw>"hi"<end><message><raw>7<end><message><raw>3<raw>{"a":1}<end><message>user<raw>["x"]<raw>null<part><member>"text"<value>5<end><end><message><end>`},
		{"chat without messages", openai.Chat, `{"model":"m"}`, "<model>m"},
		{"chat, messages no list", openai.Chat, `{"model":"m","messages":{"a":1}}`, `<model>m<raw>{"a":1}`},
		{"completions", openai.Completions, `{"model":"m","prompt":"once","suffix":"end"}`, `<model>m<text>once<setting>suffix<value>"end"`},
		{"completions, several", openai.Completions, `{"model":"m","prompt":["a","b"]}`, `<model>m<text>a<text>b`},
		{"completions, tokens", openai.Completions, `{"model":"m","prompt":[1, 2,3]}`, `<model>m<raw>[1, 2,3`},
		{"completions, lists of tokens", openai.Completions, `{"model":"m","prompt":[[1],[2]]}`, `<model>m<raw>[[1],[2]`},
		{"completions, empty", openai.Completions, `{"model":"m","prompt":[]}`, `<model>m`},
		{"embeddings", openai.Embeddings, `{"model":"m","input":["a","b"],"dimensions":5}`, `<model>m<text>a<text>b`},
		{"responses", openai.Responses, `{"model":"m","instructions":"i","input":"hi"}`, `<model>m<setting>instructions<value>"i"<message>user<text>hi<end>`},
		{"responses with items", openai.Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call_output","output":"5"}]}`,
			`<model>m<message>user<text>hi<end><message><member>"type"<value>"function_call_output"<member>"output"<value>"5"<end>`},
		{"messages", openai.Messages, `{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"x"}]}`,
			`<model>m<message>system<text>s<end><message>user<text>x<end>`},
		{"cache salt", openai.Chat, `{"model":"m","cache_salt":"s","messages":[]}`, `<model>m<setting>cache_salt<value>"s"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := readable.Replace(render(t, c.op, c.body)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What engines treat alike must render alike, and what they treat differently must not.
func TestAlikeAndNot(t *testing.T) {
	chat := func(messages string) string { return `{"model":"m","messages":` + messages + `}` }
	for _, c := range []struct {
		name  string
		op    openai.Op
		a, b  string
		alike bool
	}{
		{"white space and order", openai.Chat, chat(`[{"role":"user","content":"x"}]`), "{ \"messages\" : [ {\"content\" : \"x\", \"role\":\"user\"} ] , \"model\":\"m\" }", true},
		{"escapes", openai.Chat, chat(`[{"role":"user","content":"\u0041\/"}]`), chat(`[{"role":"user","content":"A/"}]`), true},
		{"a string and one part", openai.Chat, chat(`[{"role":"user","content":"x"}]`), chat(`[{"role":"user","content":[{"type":"text","text":"x"}]}]`), true},
		{"a moving cache_control", openai.Messages, chat(`[{"role":"user","content":[{"type":"tool_result","content":"x","cache_control":{"type":"ephemeral"}}]}]`),
			chat(`[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]`), true},
		{"sampling", openai.Chat, `{"model":"m","messages":[],"temperature":0}`, `{"model":"m","messages":[],"stream":true}`, true},
		{"an input and a message", openai.Responses, `{"model":"m","input":"x"}`, `{"model":"m","input":[{"role":"user","content":"x"}]}`, true},
		{"model", openai.Chat, `{"model":"m","messages":[]}`, `{"model":"n","messages":[]}`, false},
		{"role", openai.Chat, chat(`[{"role":"user","content":"x"}]`), chat(`[{"role":"tool","content":"x"}]`), false},
		{"role against content", openai.Chat, chat(`[{"role":"userx","content":""}]`), chat(`[{"role":"user","content":"x"}]`), false},
		{"two parts and one", openai.Chat, chat(`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]`), chat(`[{"role":"user","content":"xy"}]`), false},
		{"two messages and one", openai.Chat, chat(`[{"role":"user","content":"x"},{"role":"user","content":"y"}]`), chat(`[{"role":"user","content":"xy"}]`), false},
		{"text that looks like a member", openai.Chat, chat(`[{"role":"user","content":"x\"name\"\"bob\""}]`), chat(`[{"role":"user","content":"x","name":"bob"}]`), false},
		{"a thinking part", openai.Messages, chat(`[{"role":"user","content":[{"type":"thinking","text":"x"}]}]`), chat(`[{"role":"user","content":[{"type":"text","text":"x"}]}]`), false},
		{"tokens and text", openai.Completions, `{"model":"m","prompt":[1,2]}`, `{"model":"m","prompt":"[1,2"}`, false},
	} {
		if got := render(t, c.op, c.a) == render(t, c.op, c.b); got != c.alike {
			t.Errorf("%s: alike %v\n%s\n%s", c.name, got, readable.Replace(render(t, c.op, c.a)), readable.Replace(render(t, c.op, c.b)))
		}
	}
}

func TestRenderAppendsAndKeepsNothing(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
	req, scanErr := openai.Scan(openai.Chat, body)
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	before := bytes.Clone(body)
	got := prompt.Render([]byte("before"), openai.Chat, req, body)
	if !bytes.Equal(body, before) {
		t.Error("the body was changed")
	}
	want := "before" + render(t, openai.Chat, string(before))
	copy(body, bytes.Repeat([]byte(" "), len(body)))
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnknownOp(t *testing.T) {
	req := &openai.Request{Model: "m"}
	if got := prompt.Render(nil, openai.Unknown, req, []byte(`{"x":1}`)); readable.Replace(string(got)) != `<model>m<raw>{"x":1}` {
		t.Errorf("%q", got)
	}
}

// TestAnInlineImageCountsAsOne: 4 KiB, equal for the same image, and unlike from the beginning on for another.
func TestAnInlineImageCountsAsOne(t *testing.T) {
	with := func(data string) string {
		return render(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+data+`"}},{"type":"text","text":"what?"}]}]}`)
	}
	large := strings.Repeat("A", 1<<20)
	one, other := with(large), with(large[1:]+"B")
	if len(one) > 5000 || len(one) < 4096 || one != with(large) || !strings.HasSuffix(one, "\xFCwhat?\xFF") {
		t.Errorf("%d bytes", len(one))
	}
	at := 0
	for at < len(one) && one[at] == other[at] {
		at++
	}
	if at > 200 {
		t.Errorf("they are equal for %d bytes", at)
	}
	if small := with("AAAA"); !strings.Contains(small, "base64,AAAA") {
		t.Errorf("%q", small)
	}
}
