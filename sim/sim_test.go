package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fast are rates at which nothing waits.
func fast() Rates {
	r := DefaultRates()
	r.PrefillTokensPerSecond, r.DecodeTokensPerSecond, r.OverheadMS, r.DecodeSlowdown = 1e12, 1e12, 0, 0
	return r
}

func start(t *testing.T, r Rates) (*Sim, string) {
	t.Helper()
	s, err := New(Config{Models: []string{"m", "m2"}, Rates: r})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, server.URL
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// datas are the data lines of a stream.
func datas(t *testing.T, stream string) []string {
	t.Helper()
	var out []string
	for _, event := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		_, data, ok := strings.Cut(event, "data: ")
		if !ok {
			t.Fatalf("event without data: %q", event)
		}
		out = append(out, data)
	}
	return out
}

func get[T any](t *testing.T, raw string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

type chatAnswerJSON struct {
	Fingerprint string `json:"system_fingerprint"`
	Choices     []struct {
		Index   int
		Message struct {
			Content   string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Delta  struct{ Content string }
		Finish *string `json:"finish_reason"`
	}
	Usage *usageObject
}

const hello = `"model":"m","messages":[{"role":"user","content":"hello there, how are you today?"}]`

func TestChatCountsAndCaches(t *testing.T) {
	_, url := start(t, fast())
	body := `{"model":"m","max_tokens":40,"messages":[{"role":"user","content":"` + strings.Repeat("long ", 100) + `"}]}`
	_, raw := post(t, url+"/v1/chat/completions", body)
	first := get[chatAnswerJSON](t, raw)
	if u := first.Usage; u.Completion != 40 || u.Details.Cached != 0 || u.Total != u.Prompt+40 {
		t.Fatalf("usage %+v", u)
	}
	if *first.Choices[0].Finish != "length" || !strings.HasPrefix(first.Choices[0].Message.Content, "(simulator) ") || first.Fingerprint != "simulator" {
		t.Fatalf("answer %+v", first)
	}
	_, raw = post(t, url+"/v1/chat/completions", body)
	again := get[chatAnswerJSON](t, raw)
	whole := (first.Usage.Prompt - 1) / BlockTokens * BlockTokens
	if again.Usage.Details.Cached != whole || again.Choices[0].Message.Content != first.Choices[0].Message.Content {
		t.Fatalf("second time: cached %d, expected %d; text %q", again.Usage.Details.Cached, whole, again.Choices[0].Message.Content)
	}
	other := strings.Replace(body, `"m"`, `"m2"`, 1)
	_, raw = post(t, url+"/v1/chat/completions", other)
	if u := get[chatAnswerJSON](t, raw).Usage; u.Details.Cached != 0 {
		t.Fatalf("models share blocks: %+v", u)
	}
}

// The generated answer is cached too: the next turn finds it.
func TestNextTurnFindsTheAnswer(t *testing.T) {
	_, url := start(t, fast())
	user := strings.Repeat("long ", 100)
	_, raw := post(t, url+"/v1/chat/completions", `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"`+user+`"}]}`)
	first := get[chatAnswerJSON](t, raw)
	_, raw = post(t, url+"/v1/chat/completions", fmt.Sprintf(
		`{"model":"m","messages":[{"role":"user","content":%q},{"role":"assistant","content":%q},{"role":"user","content":"and then?"}]}`,
		user, first.Choices[0].Message.Content))
	u := get[chatAnswerJSON](t, raw).Usage
	if least := first.Usage.Total - BlockTokens; u.Details.Cached < least {
		t.Fatalf("cached %d, at least %d expected", u.Details.Cached, least)
	}
}

func TestStreamUsage(t *testing.T) {
	_, url := start(t, fast())
	for _, c := range []struct {
		name, options string
		running, last bool
	}{
		{"none", ``, false, false},
		{"last", `,"stream_options":{"include_usage":true}`, false, true},
		{"running without include", `,"stream_options":{"continuous_usage_stats":true}`, false, false},
		{"running", `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
				_, raw := post(t, url+path, `{`+hello+`,"prompt":"hello","max_tokens":5,"stream":true`+c.options+`}`)
				checkStreamUsage(t, datas(t, raw), c.running, c.last)
			}
		})
	}
}

func checkStreamUsage(t *testing.T, events []string, running, last bool) {
	t.Helper()
	if n := len(events); events[n-1] != "[DONE]" {
		t.Fatalf("last event %q", events[n-1])
	}
	events = events[:len(events)-1]
	if last {
		end := get[chatAnswerJSON](t, events[len(events)-1])
		if len(end.Choices) != 0 || end.Usage == nil || end.Usage.Completion != 5 || end.Usage.Details == nil {
			t.Fatalf("usage chunk %s", events[len(events)-1])
		}
		events = events[:len(events)-1]
	}
	for i, e := range events {
		chunk := get[chatAnswerJSON](t, e)
		if len(chunk.Choices) != 1 || (chunk.Usage != nil) != running {
			t.Fatalf("chunk %d: %s", i, e)
		}
		if left := int64(len(events) - 1 - i); running && chunk.Usage.Completion != 5-left {
			t.Fatalf("chunk %d: running usage %+v", i, chunk.Usage)
		}
	}
}

func TestChoicesStopAndFormats(t *testing.T) {
	_, url := start(t, fast())
	for _, c := range []struct{ name, more, want, finish string }{
		{"stop", `"max_tokens":100,"stop":["lator","tor)"]`, "(simu", "stop"},
		{"stop null", `"max_tokens":2,"stop":null`, "(simulat", "length"},
		{"json object", `"response_format":{"type":"json_object"}`, `{"simulator":true}`, "stop"},
		{"json schema", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"b":{"type":"integer"},"a":{"$ref":"#/$defs/s"}},"$defs":{"s":{"enum":["red"]}}}}}`, `{"a":"red","b":1}`, "stop"},
		{"json too long", `"max_tokens":1,"response_format":{"type":"json_object"}`, `{"si`, "length"},
		{"nothing", `"max_tokens":0`, "", "length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, raw := post(t, url+"/v1/chat/completions", `{`+hello+`,`+c.more+`}`)
			a := get[chatAnswerJSON](t, raw)
			if got := a.Choices[0]; got.Message.Content != c.want || *got.Finish != c.finish {
				t.Fatalf("%s", raw)
			}
			_, raw = post(t, url+"/v1/chat/completions", `{"stream":true,`+hello+`,`+c.more+`}`)
			text, finish := "", ""
			for _, e := range datas(t, raw) {
				if e == "[DONE]" {
					break
				}
				got := get[chatAnswerJSON](t, e).Choices[0]
				text += got.Delta.Content
				if got.Finish != nil {
					finish += *got.Finish
				}
			}
			if text != c.want || finish != c.finish {
				t.Fatalf("stream: %q %q", text, finish)
			}
		})
	}
	_, raw := post(t, url+"/v1/chat/completions", `{`+hello+`,"n":3,"max_tokens":7}`)
	if a := get[chatAnswerJSON](t, raw); len(a.Choices) != 3 || a.Usage.Completion != 21 || a.Choices[0].Message.Content == a.Choices[1].Message.Content {
		t.Fatalf("n: %s", raw)
	}
}

func TestToolCall(t *testing.T) {
	_, url := start(t, fast())
	tools := `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
	for _, choice := range []string{`"required"`, `{"type":"function","function":{"name":"weather"}}`} {
		_, raw := post(t, url+"/v1/chat/completions", `{`+hello+`,`+tools+`,"tool_choice":`+choice+`}`)
		c := get[chatAnswerJSON](t, raw).Choices[0]
		if len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Name != "weather" ||
			c.Message.ToolCalls[0].Function.Arguments != `{"city":"simulated"}` || *c.Finish != "tool_calls" {
			t.Fatalf("%s", raw)
		}
	}
	if status, raw := post(t, url+"/v1/chat/completions", `{`+hello+`,`+tools+`,"tool_choice":{"type":"function","function":{"name":"no"}}}`); status != 400 {
		t.Fatalf("%d %s", status, raw)
	}
}

func TestRefusals(t *testing.T) {
	_, url := start(t, fast())
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/chat/completions", `{"model":"x"}`, 404, `"code":"model_not_found"`},
		{"/v1/messages", `{"model":"x"}`, 404, `"type":"not_found_error"`},
		{"/v1/chat/completions", `{`, 400, `"type":"invalid_request_error"`},
		{"/v1/chat/completions", `{` + hello + `,"n":0}`, 400, `"param":"n"`},
		{"/v1/chat/completions", `{` + hello + `,"max_tokens":-1}`, 400, `"param":"max_tokens"`},
		{"/v1/embeddings", `{"model":"m"}`, 400, `"param":"input"`},
		{"/v1/completions", `{"model":"m","prompt":{}}`, 400, `"param":"prompt"`},
		{"/v1/none", `{}`, 404, `"code":"unknown_url"`},
	} {
		status, raw := post(t, url+c.path, c.body)
		if status != c.status || !strings.Contains(raw, c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, raw)
		}
	}
}

func TestCacheHitIsFaster(t *testing.T) {
	r := fast()
	r.PrefillTokensPerSecond = 20_000
	_, url := start(t, r)
	body := `{"model":"m","max_tokens":1,"prompt":"` + strings.Repeat("abcd", 4000) + `"}`
	took := func() time.Duration {
		from := time.Now()
		post(t, url+"/v1/completions", body)
		return time.Since(from)
	}
	if cold := took(); cold < 200*time.Millisecond {
		t.Fatalf("4,000 tokens at 20,000 a second took %v", cold)
	}
	// On a slow machine one may take long all the same, but without the cache none is as fast as this.
	for end := time.Now().Add(time.Minute); ; {
		warm := took()
		if warm < 200*time.Millisecond {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a cached prompt took %v", warm)
		}
	}
}
