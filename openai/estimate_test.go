package openai

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestPromptSize(t *testing.T) {
	photo := "data:image/png;base64," + strings.Repeat("QUJD", 10_000)
	sound := strings.Repeat("QUJD", 10_000)
	for name, c := range map[string]struct {
		op   Op
		body string
		want PromptSize
	}{
		"nothing":          {Chat, `{"model":"m"}`, PromptSize{}},
		"a message":        {Chat, `{"model":"m","messages":[{"role":"user","content":"hello"}]}`, PromptSize{Text: 4 + 5}},
		"text in parts":    {Chat, `{"model":"m","messages":[{"content":[{"text":"ab"},{"text":"cde"}]}]}`, PromptSize{Text: 5}},
		"escapes":          {Chat, `{"model":"m","messages":["a\n\"\u00e9\u4e2d\ud83d\ude00"]}`, PromptSize{Text: 1 + 1 + 1 + 2 + 3 + 4}},
		"wide":             {Chat, `{"model":"m","messages":["é中😀"]}`, PromptSize{Text: 2 + 3 + 4}},
		"numbers in chat":  {Chat, `{"model":"m","messages":[1,2,{"x":3}]}`, PromptSize{}},
		"photo":            {Chat, `{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":"` + photo + `","detail":"low"}}]}]}`, PromptSize{Text: 9 + 3, Media: 1}},
		"photo by address": {Chat, `{"model":"m","messages":[{"content":[{"image_url":{"url":"http://x"}}]}]}`, PromptSize{Media: 1}},
		"photo, short":     {Responses, `{"model":"m","input":[{"content":[{"image_url":"` + photo + `"}]}]}`, PromptSize{Media: 1}},
		"photo, bare":      {Embeddings, `{"model":"m","input":[{"text":"a","image":"` + sound + `"}]}`, PromptSize{Text: 1, Media: 1}},
		"two photos":       {Chat, `{"model":"m","messages":[{"content":[{"image":["` + photo + `","data:,"]}]}]}`, PromptSize{Media: 2}},
		"sound":            {Chat, `{"model":"m","messages":[{"content":[{"input_audio":{"data":"` + sound + `","format":"wav"}}]}]}`, PromptSize{Text: 3, Media: 1}},
		"photo, anthropic": {Messages, `{"model":"m","messages":[{"content":[{"source":{"type":"base64","media_type":"a/b","data":"` + sound + `"}}]}]}`, PromptSize{Text: 6 + 3, Media: 1}},
		"text, anthropic":  {Messages, `{"model":"m","messages":[{"content":[{"source":{"type":"text","data":"plain text"}}]}]}`, PromptSize{Text: 4 + 10}},
		"file":             {Chat, `{"model":"m","messages":[{"content":[{"file":{"file_data":"` + photo + `"}}]}]}`, PromptSize{Media: 1}},
		"no photo":         {Chat, `{"model":"m","messages":[{"content":[{"image_url":{"url":""}}]}]}`, PromptSize{}},
		"a data URL as text": {Chat, `{"model":"m","messages":[{"content":"` + photo + `"}]}`,
			PromptSize{Text: int64(len(photo))}},
		"photo, escaped name":     {Chat, `{"model":"m","messages":[{"content":[{"image\u005furl":{"u\u0072l":"` + photo + `"}}]}]}`, PromptSize{Media: 1}},
		"media not in the prompt": {Chat, `{"model":"m","x":[{"image_url":"data:,x"}],"metadata":{"image_url":"data:,x"}}`, PromptSize{}},
		"what is no prompt":       {Chat, `{"model":"mmmm","user":"uuuu","stop":["ssss"],"metadata":{"a":"aaaa"},"response_format":{"a":"b"}}`, PromptSize{}},
		"tools":                   {Chat, `{"model":"m","tools":[{"x":{"y": "z"}}],"functions":[1]}`, PromptSize{Text: 18 + 3}},
		"arguments":               {Messages, `{"model":"m","messages":[{"content":[{"name":"f","input":{"image": "x"}}]}]}`, PromptSize{Text: 1 + 14}},
		"arguments as text":       {Chat, `{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1}"}}]}]}`, PromptSize{Text: 7}},
		"system and instructions": {Messages, `{"model":"m","system":[{"text":"abc"}],"instructions":"de"}`, PromptSize{Text: 5}},
		"a prompt":                {Completions, `{"model":"m","prompt":"abc","suffix":"de"}`, PromptSize{Text: 5}},
		"prompts":                 {Completions, `{"model":"m","prompt":["abc","de"]}`, PromptSize{Text: 5}},
		"tokens":                  {Completions, `{"model":"m","prompt":[1,22,333]}`, PromptSize{Tokens: 3}},
		"several of tokens":       {Embeddings, `{"model":"m","input":[[1,22],[333],[]]}`, PromptSize{Tokens: 3}},
		"numbers of an item":      {Responses, `{"model":"m","input":[{"index":1,"logprobs":[2]}]}`, PromptSize{}},
		"lone surrogate":          {Chat, `{"model":"m","messages":["\ud83d"]}`, PromptSize{Text: 2}},
	} {
		r, err := Scan(c.op, []byte(c.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Prompt != c.want {
			t.Errorf("%s: %+v, want %+v", name, r.Prompt, c.want)
		}
	}
}

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		size PromptSize
		want int64
	}{
		{PromptSize{}, 0},
		{PromptSize{Text: 1}, 1},
		{PromptSize{Text: 8}, 2},
		{PromptSize{Text: 9, Media: 2, Tokens: 5}, 3 + 2*mediaTokens + 5},
		{PromptSize{Text: 4, Media: math.MaxInt64}, math.MaxInt64},
		{PromptSize{Text: math.MaxInt64, Tokens: math.MaxInt64}, math.MaxInt64},
	} {
		if got := c.size.Estimate(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.size, got, c.want)
		}
	}
}

func TestOutputAsked(t *testing.T) {
	const most = "9223372036854775807"
	for _, c := range []struct {
		op         Op
		body, want string // tokens, whether given, choices
	}{
		{Chat, `{"model":"m"}`, "0 false 1"},
		{Chat, `{"model":"m","n":3}`, "0 false 3"},
		{Chat, `{"model":"m","max_tokens":null,"n":null}`, "0 false 1"},
		{Chat, `{"model":"m","max_tokens":5,"n":3,"best_of":7}`, "15 true 3"},
		{Chat, `{"model":"m","max_tokens":0}`, "0 true 1"},
		{Chat, `{"model":"m","max_tokens":5,"max_completion_tokens":9}`, "9 true 1"},
		{Chat, `{"model":"m","max_completion_tokens":4,"max_tokens":5}`, "5 true 1"},
		{Chat, `{"model":"m","max_output_tokens":5}`, "0 false 1"},
		{Chat, `{"model":"m","max_tokens":` + most + `,"n":128}`, most + " true 128"},
		{Completions, `{"model":"m","prompt":"x","max_tokens":5,"n":2,"best_of":4}`, "20 true 4"},
		{Completions, `{"model":"m","prompt":"x","max_tokens":5,"n":2}`, "10 true 2"},
		{Completions, `{"model":"m","prompt":["x","y","z"],"max_tokens":5,"n":2}`, "30 true 6"},
		{Completions, `{"model":"m","prompt":[1,2,3],"max_tokens":5}`, "5 true 1"},
		{Completions, `{"model":"m","prompt":[[1,2],[3]],"max_tokens":5}`, "10 true 2"},
		{Completions, `{"model":"m","prompt":[],"max_completion_tokens":5}`, "0 false 1"},
		{Embeddings, `{"model":"m","input":["x","y"],"max_tokens":5,"n":2}`, "0 true 1"},
		{Responses, `{"model":"m","input":"x","max_output_tokens":5,"max_tokens":7,"n":2}`, "5 true 1"},
		{Messages, `{"model":"m","max_tokens":5,"n":2}`, "5 true 1"},
	} {
		r, err := Scan(c.op, []byte(c.body))
		if err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		n, given := r.OutputAsked()
		if got := fmt.Sprint(n, given, r.Choices()); got != c.want {
			t.Errorf("%v %s: %s, want %s", c.op, c.body, got, c.want)
		}
	}
}

// FuzzPromptSize holds Scan's measure against one that walks by paths.
func FuzzPromptSize(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","content":[{"image_url":{"url":"data:,"}},{"text":"\u00e9\ud83d\ude00"}],"input":[1]}]}`)
	f.Add(`{"model":"m","prompt":[[1,2],"a",{"input_audio":{"data":"QUJD"}}],"tools":[{"input":1}],"input":7}`)
	f.Add(`{"model":"m","system":{"source":{"data":"two words","x":[{"url":"\u0064"}]},"file_data":"QUJD"},"metadata":[1]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if req, err := Scan(Responses, []byte(body)); err == nil {
			if want := sizeSlowly([]byte(body)); req.Prompt != want {
				t.Fatalf("%+v, and %+v by paths", req.Prompt, want)
			}
		}
	})
}

func sizeSlowly(body []byte) (size PromptSize) {
	var walk func(v []byte, path []string)
	walk = func(v []byte, path []string) {
		switch c := v[0]; {
		case len(path) > 1 && path[len(path)-1] == "input":
			size.Text += int64(len(v))
		case c == '{' || c == '[':
			Each(v, func(key, v []byte) bool {
				name := listItem
				if key != nil {
					name = string(Unquote(nil, key))
				}
				walk(v, append(slices.Clip(path), name))
				return true
			})
		case c == '"' && isMedium(path, v):
			if len(v) > 2 {
				size.Media++
			}
		case c == '"':
			size.Text += decodedSize(v)
		case c == '-' || '0' <= c && c <= '9':
			if (path[0] == "prompt" || path[0] == "input") && !slices.ContainsFunc(path[1:], func(s string) bool { return s != listItem }) {
				size.Tokens++
			}
		}
	}
	Each(body, func(key, v []byte) bool {
		switch name := string(Unquote(nil, key)); name {
		case "messages", "system", "instructions", "documents", "suffix", "prompt", "input":
			walk(v, []string{name})
		case "tools", "functions", "chat_template_kwargs":
			size.Text += int64(len(v))
		}
		return true
	})
	return size
}

// isMedium says whether a string at the end of a path is counted as a medium.
func isMedium(path []string, v []byte) bool {
	if isAddress(path) {
		return true
	}
	names := slices.DeleteFunc(slices.Clone(path), func(name string) bool { return name == listItem })
	last := len(names) - 1
	held := slices.ContainsFunc(names[:last], func(name string) bool { return name == "source" || slices.Contains(mediaNames, name) })
	return (names[last] == "file_data" || names[last] == "data" && held) && !strings.Contains(string(v[:min(len(v)-1, maxLook+1)]), " ")
}

// decodedSize is how many bytes a string decodes to; a lone surrogate is two.
func decodedSize(v []byte) (n int64) {
	for v = v[1 : len(v)-1]; len(v) > 0; n++ {
		switch {
		case v[0] != '\\':
			v = v[1:]
		case v[1] != 'u':
			v = v[2:]
		default:
			code, _ := strconv.ParseUint(string(v[2:6]), 16, 16)
			v = v[6:]
			switch {
			case 0x80 <= code && code < 0x800 || 0xd800 <= code && code < 0xe000:
				n++
			case code >= 0x800:
				n += 2
			}
		}
	}
	return n
}
