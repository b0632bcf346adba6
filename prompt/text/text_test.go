package text

import (
	"errors"
	"strings"
	"testing"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
)

const chatML = "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}" +
	"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}" +
	"{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}</call>{% endfor %}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"

const parted = "{% for m in messages %}[{{ m['role'] }}]{% for p in m['content'] %}{{ p.type }}:{{ p.text }};{% endfor %}{% endfor %}"

func render(t testing.TB, p *workerv1.Profile, op openai.Op, body string) (string, error) {
	t.Helper()
	m, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	req, bad := openai.Scan(op, []byte(body))
	if bad != nil {
		t.Fatal(bad)
	}
	out, err := m.Render([]byte("before "), req, []byte(body))
	text, is := strings.CutPrefix(string(out), "before ")
	if !is {
		t.Fatalf("what was there is gone: %q", out)
	}
	return text, err
}

func TestChat(t *testing.T) {
	for _, c := range []struct{ name, template, messages, more, want string }{
		{"plain", chatML, `{"role":"user","content":"Hi\u00e9"}`, ``, "<|im_start|>user\nHié<|im_end|>\n<|im_start|>assistant\n"},
		{"parts are joined", chatML, `{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}`, ``,
			"<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"},
		{"or stay parts", parted, `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":"a","extra":1},{"type":"text","text":"b"}]},{"role":"tool","content":[{"type":"text","text":"r"},{"type":"text","text":"s"}]}`, ``,
			"[user]text:x;[assistant]text:a;text:b;[tool]" + strings.Repeat(":;", 3)},
		{"no content", chatML, `{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"1","function":{"name":"f","arguments":"{\"b\": 1, \"a\": [2.5, 12345678901234]}"}}]}`, ``,
			"<|im_start|>assistant\n<call>f{\"b\": 1, \"a\": [2.5, 12345678901234]}</call><|im_end|>\n<|im_start|>assistant\n"},
		{"arguments that are none", chatML, `{"role":"assistant","content":"x","tool_calls":[{"type":"function","function":{"name":"f","arguments":"[1"}},{"type":"function","function":{"name":"g","arguments":""}},{"type":"function","function":{"name":"h","arguments":"7"}}]}`, ``,
			"<|im_start|>assistant\nx<call>f{}</call><call>g{}</call><call>h{}</call><|im_end|>\n<|im_start|>assistant\n"},
		{"no calls are none", chatML, `{"role":"assistant","content":"x","tool_calls":[]}`, `,"add_generation_prompt":false`, "<|im_start|>assistant\nx<|im_end|>\n"},
		{"a developer is the system", chatML, `{"role":"system","content":"one"},{"role":"user","content":"u"},{"role":"developer","content":[{"type":"text","text":"two"}]}`, ``,
			"<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"},
		{"alone it stays where it is", chatML, `{"role":"developer","content":"one"},{"role":"user","content":"u"}`, ``,
			"<|im_start|>system\none<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"},
		{"or is known", chatML + "{# 'developer' #}", `{"role":"user","content":"u"},{"role":"developer","content":"two"}`, ``,
			"<|im_start|>user\nu<|im_end|>\n<|im_start|>developer\ntwo<|im_end|>\n<|im_start|>assistant\n"},
		{"attribution goes", chatML, `{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: cch=1"},{"type":"text","text":"x-anthropic-billing-header: cch=2\nReal"}]}`, ``,
			"<|im_start|>system\nReal<|im_end|>\n<|im_start|>assistant\n"},
		{"tools", chatML, `{"role":"user","content":"u"}`, `,"tools":[{"function":{"parameters":{"z":1,"a":2},"name":"f","strict":true},"type":"function"}]`,
			"<|im_start|>system\n" + `{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": 1, "a": 2}, "strict": true}}` + "\n<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"},
		{"settings of the template", chatML, `{"role":"user","content":"u"}`, `,"chat_template_kwargs":{"enable_thinking":false}`, "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nFalse"},
		{"effort", chatML, `{"role":"user","content":"u"}`, `,"reasoning_effort":"high"`, "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nTrue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := render(t, &workerv1.Profile{ChatTemplate: c.template}, openai.Chat, `{"model":"m","messages":[`+c.messages+`]`+c.more+`}`)
			if err != nil || got != c.want {
				t.Errorf("%v\n%q, want\n%q", err, got, c.want)
			}
		})
	}
}

func TestWhatIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		name, template string
		op             openai.Op
		body           string
		want           error
	}{
		{"its mark is lost", "{% for m in messages %}{{ m.role }}{% endfor %}", openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, ErrImage},
		{"no template", "", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, ErrTemplate},
		{"the template raises", "{{ raise_exception('no') }}", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, ErrTemplate},
		{"its own template", chatML, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"chat_template":"x"}`, ErrTemplate},
		{"goes on", chatML, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"continue_final_message":true}`, ErrTemplate},
		{"token ids", chatML, openai.Completions, `{"model":"m","prompt":[1,2]}`, ErrTokens},
		{"one list of token ids", chatML, openai.Completions, `{"model":"m","prompt":[[1,2]]}`, ErrTokens},
		{"two lists of them", chatML, openai.Completions, `{"model":"m","prompt":[[1],[2]]}`, ErrPrompts},
		{"two prompts", chatML, openai.Completions, `{"model":"m","prompt":["a","b"]}`, ErrPrompts},
		{"embeddings", chatML, openai.Embeddings, `{"model":"m","input":"x"}`, ErrOperation},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := render(t, &workerv1.Profile{ChatTemplate: c.template}, c.op, c.body); !errors.Is(err, c.want) || got != "" {
				t.Errorf("%q, %v; want %v", got, err, c.want)
			}
		})
	}
	if _, err := New(&workerv1.Profile{Normalizer: "lowercase"}); err == nil {
		t.Error("an unknown normaliser is taken")
	}
	if _, err := New(&workerv1.Profile{ChatTemplate: "{% if %}"}); err == nil {
		t.Error("a template that cannot be read is taken")
	}
}

// TestMoreThanText is known up to the message that it is in, whatever that message has before it.
func TestMoreThanText(t *testing.T) {
	const before, after = `{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},`, `,{"role":"assistant","content":"c"},{"role":"user","content":"d"}`
	const wantStrings = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\n"
	const wantParts = "[system]text:s;[user]text:a;[assistant]text:b;[user]text:"
	for _, c := range []struct {
		name, part string
		want       error
	}{
		{"image", `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`, ErrImage},
		{"audio", `{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`, ErrAudio},
		{"video", `{"type":"video_url","video_url":{"url":"data:,"}}`, ErrVideo},
		{"file", `{"type":"file","file":{"file_id":"x"}}`, ErrParts},
		{"no type", `{"x":1}`, ErrParts},
	} {
		for template, want := range map[string]string{chatML: wantStrings, parted: wantParts} {
			messages := before + `{"role":"user","content":[{"type":"text","text":"what is this?"},` + c.part + `]}` + after
			got, err := render(t, &workerv1.Profile{ChatTemplate: template}, openai.Chat, `{"model":"m","messages":[`+messages+`]}`)
			if err != c.want || got != want {
				t.Errorf("%s: %v\n%q, want\n%q", c.name, err, got, want)
			}
		}
	}
	// One that puts images in front, and says something else at the beginning where there are any.
	hoisting := "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.content is not string %}{% for p in m.content %}{% if p.type == 'image' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{% endif %}{% endfor %}" +
		"{{ ns.n }} images;{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{% if p.type == 'image' %}<image>{% endif %}{% endfor %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
	image := `{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:,"}}]}`
	got, err := render(t, &workerv1.Profile{ChatTemplate: hoisting}, openai.Chat, `{"model":"m","messages":[{"role":"system","content":"s"},`+image+`,`+image+`]}`)
	if err != ErrImage || got != "2 images;[system]s[user]<image>" {
		t.Errorf("%v, %q", err, got)
	}
}

func TestCompletions(t *testing.T) {
	p := &workerv1.Profile{BosToken: "<s>", AddsBos: true, DummyPrefix: true, Metaspace: true,
		AddedTokens: []*workerv1.AddedToken{{Content: "<s>"}, {Content: "</s>"}}}
	for body, want := range map[string]string{
		`{"model":"m","prompt":"a</s>b▁c"}`:                     "<s> a</s> b c",
		`{"model":"m","prompt":["a"]}`:                          "<s> a",
		`{"model":"m","prompt":"a","add_special_tokens":false}`: " a",
	} {
		if got, err := render(t, p, openai.Completions, body); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", body, got, err, want)
		}
	}
}

func TestNormalForm(t *testing.T) {
	added := []*workerv1.AddedToken{{Content: "<a>", Lstrip: true}, {Content: "<ab>", Rstrip: true}, {Content: "[w]", SingleWord: true}, {Content: "<"}}
	for _, c := range []struct {
		name string
		p    *workerv1.Profile
		in   string
		want string
	}{
		{"nothing to do", &workerv1.Profile{}, "e\u0301 ▁", "e\u0301 ▁"},
		{"NFC", &workerv1.Profile{Normalizer: "nfc"}, "e\u0301", "é"},
		{"NFC does not reach over a token", &workerv1.Profile{Normalizer: "nfc", AddedTokens: added}, "e<\u0301", "e<\u0301"},
		{"the longest token; white space goes", &workerv1.Profile{AddedTokens: added}, "x \n<a> y <ab> \tz<", "x<a> y <ab>z<"},
		{"a word", &workerv1.Profile{AddedTokens: added, DummyPrefixFirst: true}, "x[w]y [w] z", " x[w]y [w] z"},
		{"a prefix for the first only", &workerv1.Profile{AddedTokens: added, DummyPrefixFirst: true}, "x<y", " x<y"},
		{"a space is there already", &workerv1.Profile{DummyPrefix: true}, " x", " x"},
	} {
		n, err := newNormaliser(c.p)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(n.append(nil, c.in)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
