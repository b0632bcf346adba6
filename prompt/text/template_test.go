package text

import (
	"strings"
	"testing"

	"github.com/ardanlabs/jinja"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
)

// TestWhiteSpaceIsPythons: what Jinja 3.1 makes of each, with trim_blocks and lstrip_blocks, and the engines' filter for JSON.
func TestWhiteSpaceIsPythons(t *testing.T) {
	for _, c := range [][2]string{
		{"a\n{% if x %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
		{"a\n  {% if x %}  b{% endif %}\n  c", "a\n  b  c"},
		{"{%- if x -%}  a  {%- endif -%}  b", "ab"},
		{"{% for i in l %}{{ i }}\n{% endfor %}<e>\n", "1\n2\n<e>"},
		{"  {# note #}\nx {# n #} y", "x  y"},
		{"a {%+ if x +%}\n b {% endif %}", "a \n b "},
		{"{{- 'a' -}}  \n b {{ 'c' }}\n{{ 'd' }}", "ab c\nd"},
		{"{% raw %}{{ no }} {% if %}{% endraw %}\n z", "{{ no }} {% if %} z"},
		{"{%- raw -%} {{ no }} {%- endraw -%} z", "{{ no }}z"},
		{"a\r\n{% if x %}\r\nb{% endif %}\r\n\r\n", "a\nb"},
		{"{{ d | tojson }} {{ d|tojson(indent=2) }} {{ 'é😀\"\\n' | tojson(ensure_ascii=True) }} {{ [] | tojson(indent=1) }}", "{\"b\": [1, null, true], \"a\": \"é\\n\"} {\n  \"b\": [\n    1,\n    null,\n    true\n  ],\n  \"a\": \"é\\n\"\n} \"\\u00e9\\ud83d\\ude00\\\"\\n\" []"},
		{"{{ d | tojson(separators=(',', ':')) }}", "{\"b\":[1,null,true],\"a\":\"é\\n\"}"},
		{"t\\back \"quoted\" \t tab\n {{ x }}", "t\\back \"quoted\" \t tab\n True"},
		{"{% if x %}\n\n  two{% endif %}", "\n  two"},
		{"", ""},
		{"\n", ""},
		{"\n\n", "\n"},
	} {
		compiled, err := compile(c[0])
		if err != nil {
			t.Errorf("%q: %v", c[0], err)
			continue
		}
		m := Model{template: compiled}
		got, err := m.render(map[string]jinja.Value{
			"x": jinja.NewBool(true), "l": value([]byte("[1,2]")), "d": value([]byte("{\"b\":[1,null,true],\"a\":\"é\\n\"}")),
		})
		if err != nil || got != c[1] {
			t.Errorf("%q: %v\n%q, want\n%q", c[0], err, got, c[1])
		}
	}
}

// TestTemplatesEnd, whatever is in them: the error is one that says so.
func TestTemplatesEnd(t *testing.T) {
	for name, source := range map[string]string{
		"a long range":      "{% for i in range(1000000000) %}{% endfor %}",
		"many ranges":       "{% for i in range(50000) %}{% for j in range(50000) %}{% endfor %}{% endfor %}",
		"loops in loops":    "{% for a in l %}{% for b in l %}{% for c in l %}x{% endfor %}{% endfor %}{% endfor %}",
		"a macro by itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"two macros":        "{%- macro a() -%}{{ b() }}{%- endmacro -%}{%	macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
	} {
		compiled, err := compile(source)
		if err != nil {
			t.Fatal(name, err)
		}
		m := Model{template: compiled}
		list := make([]jinja.Value, 2000)
		for i := range list {
			list[i] = jinja.NewInt(1)
		}
		if _, err := m.render(map[string]jinja.Value{"l": jinja.NewList(list)}); err == nil || !strings.Contains(err.Error(), errBudget.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(&workerv1.Profile{ChatTemplate: strings.Repeat("x", mostTemplate+1)}); err == nil {
		t.Error("a template without bounds is taken")
	}
	itself, err := compile("{% set a = [] %}{% set b = a.append(a) %}{{ a | tojson }}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Model{template: itself}).render(map[string]jinja.Value{}); err == nil || !strings.Contains(err.Error(), errDeep.Error()) {
		t.Errorf("a list in itself: %v", err)
	}
	for _, c := range [][2]string{
		{"{% for i in range(3) %}{{ i }}{% endfor %}", "012"},
		{"{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}", "53"},
		{"{% macro m(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}{{ m(3, y=4) }}", "1234"},
		{"{% macro deep(n) %}{{ n }}{% if n > 0 %}{{ deep(n - 1) }}{% endif %}{% endmacro %}{{ deep(3) }}", "3210"},
	} {
		compiled, err := compile(c[0])
		if err != nil {
			t.Fatal(err)
		}
		m := Model{template: compiled}
		if got, err := m.render(map[string]jinja.Value{}); err != nil || got != c[1] {
			t.Errorf("%s: %q, %v", c[0], got, err)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add(chatML, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{"type":"function"}]}`)
	f.Add(parted, `{"model":"m","messages":[{"role":"developer","content":"x"},{"role":"tool","content":7},3]}`)
	f.Add("{% raw %}{{ {% {# - -%}", `{"model":"m","messages":[]}`)
	f.Fuzz(func(t *testing.T, template, body string) {
		m, err := New(&workerv1.Profile{ChatTemplate: template, Normalizer: "nfc", AddedTokens: []*workerv1.AddedToken{{Content: "<|im_start|>", Lstrip: true}}})
		if err != nil || len(template) > 300 {
			return
		}
		req, bad := openai.Scan(openai.Chat, []byte(body))
		if bad != nil {
			return
		}
		_, _ = m.Render(nil, req, []byte(body)) // must not panic
	})
}
