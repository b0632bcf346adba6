package worker

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/spokegate/spokegate/openai"
)

// edited is a body as an engine reads it.
func edited(in string, edits ...edit) string {
	b := []byte(in)
	out, _ := io.ReadAll(newBody(&b).edited(edits...).open())
	return string(out)
}

func TestAskRunningUsage(t *testing.T) {
	const both = `{"include_usage":true,"continuous_usage_stats":true`
	for _, c := range []struct{ in, want string }{
		{`{"model":"m","stream":true}`, `{"model":"m","stream":true,"stream_options":` + both + `}}`},
		{"{ \"stream\" : true , \"seed\":9007199254740993, \"model\": \"m\"\n }", "{ \"stream\" : true , \"seed\":9007199254740993, \"model\": \"m\"" + `,"stream_options":` + both + "}\n }"},
		{`{"stream_options":null,"model":"m","stream":true}`, `{"stream_options":` + both + `},"model":"m","stream":true}`},
		{`{"stream_options":{},"model":"m","stream":true}`, `{"stream_options":` + both + `},"model":"m","stream":true}`},
		{`{"stream_options":{"include_usage":false},"model":"m","stream":true}`, `{"stream_options":` + both + `},"model":"m","stream":true}`},
		{`{"stream_options": {"include_usage": true, "include_obfuscation": false },"model":"m","stream":true}`,
			`{"stream_options": ` + both + `,"include_obfuscation":false},"model":"m","stream":true}`},
		{`{"stream_options":{"\u0069nclude_usage":false},"model":"m","stream":true}`, `{"stream_options":` + both + `},"model":"m","stream":true}`},
		{`{"\u0073tream_options":{"include_usage":false},"model":"m","stream":true}`, `{"\u0073tream_options":` + both + `},"model":"m","stream":true}`},
	} {
		q, err := openai.Scan(openai.Chat, []byte(c.in))
		if err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		if got := edited(c.in, askRunningUsage([]byte(c.in), q)); got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%s\nbecomes  %s\nexpected %s", c.in, got, c.want)
		}
	}
}

// FuzzAskRunningUsage: of any body that Scan accepts the result is one that says the same but for the options and the model.
func FuzzAskRunningUsage(f *testing.F) {
	f.Add(`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`)
	f.Add(`{"stream_options":{"include_obfuscation":true , "include_usage":false}, "x":[1e400,9007199254740993],"model":"m"} `)
	f.Fuzz(func(t *testing.T, in string) {
		q, err := openai.Scan(openai.Chat, []byte(in))
		if err != nil {
			return
		}
		const name = "lora/7 \"é<\\"
		out := []byte(edited(in, rename(q, name), askRunningUsage([]byte(in), q)))
		var before, after map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &before) != nil || json.Unmarshal(out, &after) != nil {
			t.Fatalf("%q becomes %q", in, out)
		}
		var options map[string]bool
		if json.Unmarshal(after["stream_options"], &options) != nil || !options["include_usage"] || !options["continuous_usage_stats"] {
			t.Errorf("%q: options %s", in, after["stream_options"])
		}
		var model string
		if json.Unmarshal(after["model"], &model) != nil || model != name {
			t.Errorf("%q: model %s", in, after["model"])
		}
		for _, m := range []map[string]json.RawMessage{before, after} {
			delete(m, "stream_options")
			delete(m, "model")
		}
		for name, value := range before {
			if string(after[name]) != string(value) {
				t.Errorf("%q: %s became %s", in, value, after[name])
			}
		}
		if len(before) != len(after) {
			t.Errorf("%q: members came or went: %q", in, out)
		}
	})
}
