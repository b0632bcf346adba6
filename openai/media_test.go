package openai

import (
	"strings"
	"testing"
)

func TestFetches(t *testing.T) {
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
		if got := req.Fetches([]byte(c.body)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// FuzzFetches: whatever Scan accepts can be looked through.
func FuzzFetches(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"image_url":{"url":"http://x"}}],"tools":[{"server_url":1}],"input":"\u0000url"}`)
	f.Fuzz(func(_ *testing.T, body string) {
		for _, op := range []Op{Chat, Responses, Messages} {
			if req, err := Scan(op, []byte(body)); err == nil {
				req.Fetches([]byte(body))
			}
		}
	})
}
