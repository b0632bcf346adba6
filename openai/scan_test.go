package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// requestCase is one case of requests.yaml, as far as it concerns the body.
type requestCase struct {
	Name     string
	Path     string
	Headers  map[string]any
	Sent     *string
	SentSize int `yaml:"sent_size"`
	Status   any
	Code     string
}

// concernsBody is false where the answer is for headers, for the query or for Envoy's own normalisation and caps.
func (c requestCase) concernsBody() bool {
	return c.Headers == nil && !strings.Contains(c.Path, "?") && !strings.Contains(c.Path, "//") && !strings.Contains(c.Path, "..") &&
		c.SentSize < 32<<20
}

func (c requestCase) body() []byte {
	if c.Sent != nil {
		return []byte(*c.Sent)
	}
	frame := `{"model":"cheap","messages":[{"role":"user","content":"%s"}]}`
	return fmt.Appendf(nil, frame, strings.Repeat("x", c.SentSize-len(frame)+2))
}

func (c requestCase) statuses() []int {
	list, ok := c.Status.([]any)
	if !ok {
		list = []any{c.Status}
	}
	var out []int
	for _, s := range list {
		out = append(out, int(s.(uint64)))
	}
	return out
}

// answer is what a door says to a body: "cheap" is allowed, "dear" exists, no steering field may pass.
func answer(path string, body []byte) *Error {
	if path == "" {
		path = "/v1/chat/completions"
	}
	op, _, err := Route("POST", path)
	if err != nil {
		return err
	}
	r, err := Scan(op, body)
	switch {
	case err != nil:
		return err
	case len(r.Steering()) > 0:
		return InvalidBody(r.Steering()[0], "not allowed")
	case r.Model == "dear":
		return ModelNotAllowed(r.Model)
	case r.Model != "cheap":
		return ModelNotFound(r.Model)
	}
	return nil
}

func TestRequestCases(t *testing.T) {
	ran := 0
	for _, c := range loadCases[requestCase](t, "requests.yaml") {
		if !c.concernsBody() {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			status, code := 200, ""
			if err := answer(c.Path, c.body()); err != nil {
				status, code = err.Status, err.Code
			}
			if !slices.Contains(c.statuses(), status) || c.Code != "" && code != c.Code {
				t.Errorf("got %d %s, want %v %s", status, code, c.Status, c.Code)
			}
		})
	}
	if ran < 20 {
		t.Errorf("only %d cases ran", ran)
	}
}

func TestScanRefuses(t *testing.T) {
	deep := strings.Repeat
	for _, c := range []struct{ name, body, says string }{
		{"white space only", " \n", "found the end"},
		{"number", "123", "found '1'"},
		{"null", "null", "found 'n'"},
		{"byte order mark", "\uFEFF" + `{"model":"m"}`, "byte order mark, at byte 0"},
		{"UTF-16", "{\x00\"\x00m\x00", "byte 0x00, at byte 1"},
		{"NUL after", "{\"model\":\"m\"}\x00", "after the JSON object, at byte 13"},
		{"form feed as space", "{\f\"model\":\"m\"}", "byte 0x0c"},
		{"no-break space as space", "{\u00a0\"model\":\"m\"}", "byte 0xc2"},
		{"trailing comma", `{"model":"m",}`, "expected a key, found '}'"},
		{"trailing comma in a list", `{"model":"m","a":[1,]}`, "expected a value, found ']'"},
		{"comment", `{"model":"m"/**/}`, "found '/'"},
		{"single quotes", `{'model':'m'}`, "expected a key"},
		{"no colon", `{"model" "m"}`, "expected ':'"},
		{"unclosed object", `{"model":"m"`, "expected ',' or '}', found the end"},
		{"mismatched brackets", `{"model":"m","a":[}]`, "expected a value"},
		{"unclosed string", `{"model":"m`, "string that does not end, at byte 9"},
		{"unclosed escape", `{"model":"m\`, "escape sequence"},
		{"bad escape", `{"model":"\x41"}`, "escape sequence, at byte 10"},
		{"short unicode escape", `{"model":"\u00"}`, "escape sequence"},
		{"line feed in a string", "{\"model\":\"a\nb\"}", "control character in a string, at byte 11"},
		{"control character beyond eight bytes", "{\"model\":\"12345678901234\x1f\"}", "control character"},
		{"not UTF-8", "{\"model\":\"m\",\"a\":\"x\xff\"}", "not UTF-8, at byte 19"},
		{"not UTF-8, in the middle of a long text", "{\"model\":\"m\",\"a\":\"" + deep("x", 40) + "\xff" + deep("y", 40) + "\"}", "not UTF-8, at byte 58"},
		{"not UTF-8, before an escape", "{\"model\":\"m\",\"a\":\"" + deep("x", 9) + "\xff" + deep("y", 14) + "\\n" + deep("z", 24) + "\"}", "not UTF-8"},
		{"overlong UTF-8", "{\"model\":\"m\",\"a\":\"\xc0\xaf\"}", "not UTF-8"},
		{"surrogate in UTF-8", "{\"model\":\"m\",\"a\":\"\xed\xa0\x80\"}", "not UTF-8"},
		{"UTF-8 cut by an escape", "{\"model\":\"m\",\"a\":\"\xc3\\n\xa9\"}", "not UTF-8"},
		{"leading zero", `{"model":"m","a":01}`, "found '1'"},
		{"plus", `{"model":"m","a":+1}`, "found '+'"},
		{"bare point", `{"model":"m","a":1.}`, "malformed number"},
		{"bare exponent", `{"model":"m","a":1e+}`, "malformed number"},
		{"minus alone", `{"model":"m","a":-}`, "malformed number"},
		{"a number too long", `{"model":"m","seed":` + deep("1", 1025) + `}`, "more than 1024 characters, at byte 20"},
		{"NaN", `{"model":"m","a":NaN}`, "expected a value"},
		{"Infinity", `{"model":"m","a":-Infinity}`, "malformed number"},
		{"True", `{"model":"m","stream":True}`, "expected a value"},
		{"half a literal", `{"model":"m","a":nul}`, "expected null"},
		{"depth bomb", `{"model":"m","a":` + deep("[", 1<<20), "deeper than 128"},
		{"one too deep", `{"model":"m","a":` + deep("[", 128) + deep("]", 128) + `}`, "deeper than 128"},
		{"depth bomb of objects", deep(`{"a":`, 1<<18), "deeper than 128"},

		{"duplicate", `{"model":"m","stop":1,"stop":1}`, "duplicate key 'stop'"},
		{"duplicate unknown to all", `{"model":"m","zz":1,"zz":1}`, "duplicate key 'zz'"},
		{"duplicate by escape", `{"model":"m","z\u007a":1,"zz":1}`, "duplicate key"},
		{"duplicate by case", `{"model":"m","Zz":1,"zZ":1}`, "duplicate key"},
		{"duplicate by Greek case", `{"model":"m","Σ":1,"ς":1}`, "duplicate key"},
		{"Kelvin sign", `{"model":"m","top_\u212a":1}`, "differs only in case from 'top_k'"},
		{"long s by itself", `{"model":"m","ſtream":true}`, "differs only in case from 'stream'"},
		{"upper case by itself", `{"MODEL":"m"}`, "differs only in case from 'model'"},
		{"steering in other case", `{"model":"m","Priority":1}`, "differs only in case from 'priority'"},
		{"lone surrogate in a key", `{"model":"m","\ud800":1}`, "lone surrogate"},
		{"lone surrogate, then a good escape, in a key", `{"model":"m","\udc00\ufffd":1}`, "lone surrogate"},
		{"long key", `{"model":"m","` + deep("k", 257) + `":1}`, "too long"},
		{"too many members", `{"model":"m"` + numbered(256) + `}`, "too many members"},

		{"empty object", `{}`, "must name a model"},
		{"model empty", `{"model":""}`, "model must have"},
		{"model true", `{"model":true}`, "model must be a string"},
		{"model object", `{"model":{"model":"m"}}`, "model must be a string"},
		{"model with a lone surrogate", `{"model":"\ud83d"}`, "lone surrogate"},
		{"model with surrogates in the wrong order", `{"model":"\udc00\ud800"}`, "lone surrogate"},
		{"model too long", `{"model":"` + deep("m", 257) + `"}`, "model must have"},
		{"stream as text", `{"model":"m","stream":"true"}`, "stream must be true or false"},
		{"stream 1", `{"model":"m","stream":1}`, "stream must be"},
		{"max_tokens negative", `{"model":"m","max_tokens":-1}`, "max_tokens must be"},
		{"max_tokens minus zero", `{"model":"m","max_tokens":-0}`, "max_tokens must be"},
		{"max_tokens text", `{"model":"m","max_tokens":"5"}`, "max_tokens must be"},
		{"max_completion_tokens fraction", `{"model":"m","max_completion_tokens":5.0}`, "max_completion_tokens must be"},
		{"max_output_tokens exponent", `{"model":"m","max_output_tokens":1e3}`, "max_output_tokens must be"},
		{"max_tokens beyond int64", `{"model":"m","max_tokens":9223372036854775808}`, "max_tokens must be"},
		{"max_tokens huge", `{"model":"m","max_tokens":1` + deep("0", 1000) + `}`, "max_tokens must be"},
		{"n zero", `{"model":"m","n":0}`, "n must be 1 to 128"},
		{"n too large", `{"model":"m","n":129}`, "n must be 1 to 128"},
		{"n list", `{"model":"m","n":[1]}`, "n must be"},
		{"stream_options list", `{"model":"m","stream_options":[]}`, "stream_options must be an object"},
		{"stream_options beyond the standard", `{"model":"m","stream_options":{"continuous_usage_stats":true}}`, "unknown key 'continuous_usage_stats', at byte 31"},
		{"include_usage as text", `{"model":"m","stream_options":{"include_usage":"x"}}`, "include_usage must be"},
		{"a template of the client's own", `{"model":"m","chat_template_kwargs":{"enable_thinking":false,"chat_template":"{{ x }}"}}`, "chat_template_kwargs must not have 'chat_template', at byte 61"},
		{"the same with escapes", `{"model":"m","chat_template_kwargs":{"chat\u005ftemplate":null}}`, "must not have 'chat_template'"},
		{"a template's answer in tokens", `{"model":"m","chat_template_kwargs":{"tokenize":true}}`, "must not have 'tokenize'"},
		{"include_usage null", `{"model":"m","stream_options":{"include_usage":null}}`, "include_usage must be"},
		{"duplicate inside stream_options", `{"model":"m","stream_options":{"include_usage":true,"include_us\u0061ge":false}}`, "duplicate key"},
		{"case inside stream_options", `{"model":"m","stream_options":{"Include_usage":true}}`, "differs only in case"},
		{"background", `{"model":"m","background":true}`, "background is not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Scan(Chat, []byte(c.body))
			switch {
			case err == nil:
				t.Fatalf("accepted: %+v", r)
			case r != nil || err.Status != 400 || err.Code != "invalid_body":
				t.Errorf("got %v and %+v", r, err)
			case !strings.Contains(err.Message, c.says):
				t.Errorf("message %q does not say %q", err.Message, c.says)
			case len(err.Message) > 300:
				t.Errorf("message of %d bytes", len(err.Message))
			}
		})
	}
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	return b.String()
}

func TestScanAccepts(t *testing.T) {
	nested := strings.Repeat("[", 127) + strings.Repeat("]", 127)
	for _, c := range []struct {
		name, body string
		op         Op
		want       string
	}{
		{"least", `{"model":"m"}`, Chat, `m stream=false usage=false members=1`},
		{"white space everywhere", " \r\n\t{ \"model\" :\t\"m\" , \"stream\" : true }\n ", Chat, `m stream=true usage=false members=2`},
		{"all", `{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},"max_tokens":5,"n":128}`, Chat,
			`m stream=true usage=true members=5`},
		{"nulls are not given", `{"model":"m","stream":null,"stream_options":null,"max_tokens":null,"n":null,"background":null}`, Chat,
			`m stream=false usage=false members=6`},
		{"include_usage false", `{"model":"m","stream_options":{"include_usage":false}}`, Chat, `m stream=false usage=false members=2`},
		{"empty stream_options", `{"model":"m","stream_options":{}}`, Chat, `m stream=false usage=false members=2`},
		{"two limits", `{"model":"m","max_completion_tokens":9,"max_tokens":5}`, Chat, `m stream=false usage=false members=3`},
		{"a limit of another operation", `{"model":"m","max_output_tokens":9}`, Chat, `m stream=false usage=false members=2`},
		{"responses", `{"model":"m","max_output_tokens":9,"background":false}`, Responses, `m stream=false usage=false members=3`},
		{"messages", `{"model":"m","max_tokens":0}`, Messages, `m stream=false usage=false members=2`},
		{"largest integer", `{"model":"m","max_tokens":9223372036854775807}`, Completions, `m stream=false usage=false members=2`},
		{"escaped names and model", `{"mod\u0065l":"\u006d\ud83d\ude00\/","\u0073tream":true}`, Chat, `m😀/ stream=true usage=false members=2`},
		{"U+FFFD that was sent", `{"model":"\ufffd"}`, Chat, "\uFFFD stream=false usage=false members=1"},
		{"deeper is the client's", `{"model":"m","metadata":{"model":1,"Model":2,"model":3,"\ud800":"\udc00"}}`, Chat, `m stream=false usage=false members=2`},
		{"as deep as may be", `{"model":"m","a":` + nested + `}`, Chat, `m stream=false usage=false members=2`},
		{"every number", `{"model":"m","a":[0,-0,1.5,1e5,1E-5,-2.50e+10,1e999999,9007199254740993]}`, Chat, `m stream=false usage=false members=2`},
		{"longest number", `{"model":"m","a":` + strings.Repeat("1", 1024) + `}`, Chat, `m stream=false usage=false members=2`},
		{"empty key", `{"model":"m","":1}`, Chat, `m stream=false usage=false members=2`},
		{"unknown name in upper case", `{"model":"m","X_Custom":1}`, Chat, `m stream=false usage=false members=2`},
		{"as many as may be", `{"model":"m"` + numbered(255) + `}`, Chat, `m stream=false usage=false members=256`},
		{"longest model", `{"model":"` + strings.Repeat(`\u006d`, 256) + `"}`, Chat, strings.Repeat("m", 256) + ` stream=false usage=false members=1`},
		{"DEL and non-characters", "{\"model\":\"m\",\"a\":\"\x7f\uffff\U0010ffff\u2028\"}", Chat, `m stream=false usage=false members=2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Scan(c.op, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%s stream=%v usage=%v members=%d", r.Model, r.Stream, r.IncludeUsage, len(r.Members))
			if got != c.want || r.Op != c.op {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			agree(t, r, []byte(c.body))
		})
	}
}

// agree compares a request with what encoding/json reads, by exact names and by its own case-blind ones.
func agree(t testing.TB, r *Request, body []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatalf("accepted what encoding/json refuses: %v", err)
	}
	var blind struct {
		Model  string
		Stream *bool
	}
	if err := json.Unmarshal(body, &blind); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	if blind.Model != r.Model || (blind.Stream != nil && *blind.Stream) != r.Stream {
		t.Errorf("read %q %v, encoding/json %q %v", r.Model, r.Stream, blind.Model, blind.Stream)
	}
	if len(members) != len(r.Members) {
		t.Errorf("%d members, encoding/json has %d", len(r.Members), len(members))
	}
	i := 0
	Each(body, func(key, v []byte) bool {
		m := r.Members[i]
		if string(Unquote(nil, key)) != m.Name || string(key) != string(body[m.Key.Start:m.Key.End]) {
			t.Errorf("member %d: Each has key %s, Scan %q", i, key, m.Name)
		}
		if string(v) != string(body[m.Value.Start:m.Value.End]) || string(v) != string(members[m.Name]) {
			t.Errorf("member %q: Each has %s, encoding/json %s", m.Name, v, members[m.Name])
		}
		i++
		return true
	})
	if i != len(r.Members) {
		t.Errorf("Each went by %d members of %d", i, len(r.Members))
	}
}

func TestGet(t *testing.T) {
	body := []byte(`{"model":"m", "seed" : 9007199254740993 }`)
	r, err := Scan(Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := r.Get("seed"); !ok || string(body[v.Start:v.End]) != "9007199254740993" {
		t.Errorf("seed is %v %v", v, ok)
	}
	if v, ok := r.Get("Seed"); ok {
		t.Errorf("found %v under a name that is not there", v)
	}
}

func TestScanAllocatesLittle(t *testing.T) {
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"Gr\u00fc\u00dfe, 门"},`, 1000) + `1]}`)
	if n := testing.AllocsPerRun(20, func() { Scan(Chat, body) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
