package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestRemote(t *testing.T) {
	big := strings.Repeat("QUJD", 100_000)
	for name, c := range map[string]struct {
		op   Op
		body string
		want bool
	}{
		"text":                        {Chat, `{"model":"m","messages":[{"role":"user","content":"see https://x/image_url"}]}`, false},
		"image by address":            {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://10.0.0.1/"}}]}]}`, true},
		"image inline":                {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + big + `"}}]}]}`, false},
		"inline, in capitals":         {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"DATA:,x"}}]}]}`, false},
		"escaped name":                {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image\u005furl":{"u\u0072l":"file:///etc/passwd"}}]}]}`, true},
		"image as text":               {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":"http://10.0.0.1/"}]}]}`, true},
		"video":                       {Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"http://10.0.0.1/"}}]}]}`, true},
		"second of two":               {Chat, `{"model":"m","messages":[{"role":"user","content":[{"image_url":{"url":"data:,x"}},{"image_url":{"url":"http://x"}}]}]}`, true},
		"long":                        {Chat, `{"messages":[{"content":[{"image_url":{"url":"http://x/?` + big + `"}}]}],"model":"m"}`, true},
		"escaped throughout":          {Chat, `{"messages":[{"content":[{"image_url":{"url":"\u0064\u0061\u0074\u0061\u003a` + big + `"}}]}],"model":"m"}`, false},
		"an escape cut by the look":   {Chat, `{"messages":[{"content":[{"image_url":{"url":"http:` + strings.Repeat(`\u0061`, 9) + `"}}]}],"model":"m"}`, true},
		"list":                        {Chat, `{"model":"m","messages":[{"content":[{"image_url":["data:,","http://x"]}]}]}`, true},
		"list of objects":             {Chat, `{"model":"m","messages":[{"content":[{"image":[{"url":"http://x"}]}]}]}`, true},
		"image by its short name":     {Chat, `{"model":"m","messages":[{"content":[{"type":"image","image":"http://x"}]}]}`, true},
		"a path":                      {Chat, `{"model":"m","messages":[{"content":[{"type":"image","image":"/etc/passwd"}]}]}`, true},
		"audio by address":            {Chat, `{"model":"m","messages":[{"content":[{"input_audio":{"url":"http://x","format":"wav"}}]}]}`, true},
		"audio inline":                {Chat, `{"model":"m","messages":[{"content":[{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}]}]}`, false},
		"audio said before":           {Chat, `{"model":"m","messages":[{"role":"assistant","audio":{"id":"audio_1"}}],"audio":{"voice":"x"},"modalities":["audio"]}`, false},
		"deep":                        {Chat, `{"model":"m","messages":` + deep(`{"image_url":{"x":[{"url":"http://x"}]}}`) + `}`, true},
		"deep, inline":                {Chat, `{"model":"m","messages":` + deep(`{"image_url":{"url":"data:,"}}`) + `}`, false},
		"document of a search":        {Chat, `{"model":"m","messages":[],"documents":[{"url":"http://x","text":"x"}]}`, false},
		"document with an image":      {Chat, `{"model":"m","messages":[],"documents":[{"image_url":"http://x"}]}`, true},
		"prompt of parts":             {Completions, `{"model":"m","prompt":[{"image":"http://x"}]}`, true},
		"embedding of an image":       {Embeddings, `{"model":"m","input":[{"text":"x","image":"http://x"}]}`, true},
		"metadata":                    {Responses, `{"model":"m","input":"x","metadata":{"image":"logo"}}`, false},
		"a citation":                  {Responses, `{"model":"m","input":[{"content":[{"annotations":[{"type":"url_citation","url":"http://x"}]}]}]}`, false},
		"result of a search":          {Messages, `{"model":"m","messages":[{"content":[{"type":"search_result","source":"http://x","content":[]}]}]}`, false},
		"after a tool's arguments":    {Messages, `{"model":"m","messages":[{"content":[{"input":{"image":"http://x"},"image":"http://x"}]}]}`, true},
		"empty":                       {Chat, `{"model":"m","messages":[{"role":"user","content":[{"image_url":{"url":""}}]}]}`, false},
		"responses image":             {Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}]}`, true},
		"responses file":              {Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_url":"https://x"}]}]}`, true},
		"responses tool server":       {Responses, `{"model":"m","input":"x","tools":[{"type":"mcp","server_url":"https://x"}]}`, true},
		"anthropic image by address":  {Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}`, true},
		"anthropic image inline":      {Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"QUJD"}}]}]}`, false},
		"inside a tool's result":      {Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}]}`, true},
		"what a tool was called with": {Messages, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"image_url":"https://x"}}]}]}`, false},
		"a tool's parameter":          {Chat, `{"model":"m","messages":[],"tools":[{"type":"function","function":{"parameters":{"properties":{"image_url":{"type":"string"}}}}}]}`, false},
		"another url":                 {Chat, `{"model":"m","messages":[{"role":"user","content":"x","url":"https://x"}]}`, false},
	} {
		req, err := Scan(c.op, []byte(c.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := req.Remote; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// deep is v inside of as much as Scan lets pass.
func deep(v string) string {
	const n = 60
	return strings.Repeat(`{"a":[`, n) + v + strings.Repeat(`]}`, n)
}

// FuzzRemote holds Remote against a walk over encoding/json by the same rule.
func FuzzRemote(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"image_url":{"url":"http://x"}}],"tools":[{"server_url":1}],"input":"\u0000url"}`)
	f.Add(`{"model":"m","messages":[{"image":["data:,",{"a":[{"url":"\ud83d\u0064ata:"}]}],"input":{"audio":"x"}}]}`)
	f.Add(`{"model":"m","documents":{"source":{"url":"` + strings.Repeat("a", 200) + `"}},"tools":{"a":{"server_url":{}}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, op := range []Op{Chat, Responses, Messages} {
			if req, err := Scan(op, []byte(body)); err == nil {
				if got, want := req.Remote, remoteSlowly(t, body); got != want {
					t.Fatalf("%v, and %v by encoding/json", got, want)
				}
			}
		}
	})
}

// listItem stands for a list's element in a path. No member has that name.
const listItem = "\xff"

// remoteSlowly reads token by token, so that it sees duplicate members too.
func remoteSlowly(t *testing.T, body string) (found bool) {
	tokens := json.NewDecoder(strings.NewReader(body))
	next := func() json.Token {
		token, err := tokens.Token()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	var walk func(path []string)
	walk = func(path []string) {
		switch token := next(); token {
		case json.Delim('{'):
			for tokens.More() {
				walk(append(slices.Clip(path), next().(string)))
			}
			next()
		case json.Delim('['):
			for tokens.More() {
				walk(append(slices.Clip(path), listItem))
			}
			next()
		default:
			s, isText := token.(string)
			inline := s == "" || len(s) >= 5 && strings.EqualFold(s[:5], "data:")
			found = found || isText && !inline && isAddress(path)
		}
		if len(path) == 3 && path[0] == "tools" && path[2] == "server_url" {
			found = true
		}
	}
	walk(nil)
	return found
}

var mediaNames = []string{"image_url", "video_url", "audio_url", "file_url", "input_audio", "image", "video", "audio"}

// isAddress says whether a text at the end of a path would be opened.
func isAddress(path []string) bool {
	if len(path) == 0 || path[0] == "tools" || path[0] == "metadata" || slices.Contains(path[1:], "input") {
		return false
	}
	path = slices.DeleteFunc(slices.Clone(path), func(name string) bool { return name == listItem })
	last := len(path) - 1
	return slices.Contains(mediaNames, path[last]) || path[last] == "url" && slices.ContainsFunc(path[:last], func(name string) bool {
		return name == "source" || slices.Contains(mediaNames, name)
	})
}
