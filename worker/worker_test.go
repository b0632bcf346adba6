package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// sse answers with a stream.
func sse(w http.ResponseWriter, chunks ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, c := range chunks {
		_, _ = io.WriteString(w, c)
		_ = http.NewResponseController(w).Flush()
	}
}

func errorCode(t *testing.T, body string) string {
	t.Helper()
	var e struct {
		Type  string
		Error struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Message == "" {
		t.Fatalf("not an error body: %q", body)
	}
	if e.Type == "error" {
		return "anthropic " + e.Error.Type
	}
	return e.Error.Code
}

func TestOnlyAValidContextIsServed(t *testing.T) {
	asked := make(chan struct{}, 10)
	s := newShim(t, server(t, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}), nil)
	other := identity.NewMinter("door-1") // the same name, another key
	stranger := identity.NewMinter("door-2")
	c := identity.Context{Admission: "a", Endpoint: "large"}
	elsewhere := c
	elsewhere.Endpoint = "small"
	for _, refusal := range []struct {
		name, reason string
		status       int
		tokens       []string
	}{
		{"none", "context_invalid", 401, nil},
		{"garbage", "context_invalid", 401, []string{"x"}},
		{"foreign key", "context_invalid", 401, []string{other.Mint(c, time.Now())}},
		{"unknown key", "context_unknown_key", 401, []string{stranger.Mint(c, time.Now())}},
		{"expired", "context_expired", 401, []string{s.door.minter.Mint(c, time.Now().Add(-time.Hour))}},
		{"other endpoint", "context_audience", 403, []string{s.door.minter.Mint(elsewhere, time.Now())}},
		{"two", "context_invalid", 401, []string{s.context(t, "a"), s.context(t, "b")}},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			for path, code := range map[string]string{"/v1/chat/completions": "invalid_context", "/v1/messages": ""} {
				q := s.request(t, context.Background(), "a", path, chatBody)
				q.Header["X-Spokegate-Context"] = refusal.tokens
				resp, body := s.do(t, q)
				if resp.StatusCode != refusal.status || resp.Header.Get("X-Spokegate-Refused") != refusal.reason {
					t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, body)
				}
				if got := errorCode(t, body); got != code && !(code == "" && strings.HasPrefix(got, "anthropic ")) {
					t.Errorf("%s: %s", path, body)
				}
			}
		})
	}
	q := s.request(t, context.Background(), "once", "/v1/chat/completions", chatBody)
	token := q.Header.Get("X-Spokegate-Context")
	if resp, body := s.do(t, q); resp.StatusCode != 200 {
		t.Fatalf("first use: %d %s", resp.StatusCode, body)
	}
	q = s.request(t, context.Background(), "twice", "/v1/chat/completions", chatBody)
	q.Header.Set("X-Spokegate-Context", token)
	if resp, body := s.do(t, q); resp.StatusCode != 403 || resp.Header.Get("X-Spokegate-Refused") != "context_replayed" {
		t.Errorf("second use: %d %s", resp.StatusCode, body)
	}
	if len(asked) != 1 || len(s.journal.of("a")) != 0 || len(s.journal.of("once")) != 1 {
		t.Errorf("the engine was asked %d times", len(asked))
	}
}

func TestOtherRefusals(t *testing.T) {
	s := newShim(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }),
		func(c *Config) { c.MaxBody = 100 })
	long := `{"model":"` + strings.Repeat("m", 200) + `"}`
	for _, c := range []struct {
		name, method, path, body, reason string
		status                           int
		headers                          []string
	}{
		{"unknown path", "POST", "/tokenize", "{}", "unknown_url", 404, nil},
		{"models", "GET", "/v1/models", "", "unknown_url", 404, nil},
		{"method", "GET", "/v1/chat/completions", "", "method_not_allowed", 405, nil},
		{"too large", "POST", "/v1/chat/completions", long, "body_too_large", 413, nil},
		{"too large, of unknown length", "POST", "/v1/chat/completions", long, "body_too_large", 413, []string{"chunked", ""}},
		{"not JSON", "POST", "/v1/chat/completions", "{", "invalid_body", 400, nil},
		{"type", "POST", "/v1/chat/completions", "{}", "unsupported_media_type", 415, []string{"Content-Type", "text/plain"}},
		{"encoding", "POST", "/v1/chat/completions", "{}", "unsupported_media_type", 415, []string{"Content-Encoding", "br"}},
		{"encodings", "POST", "/v1/chat/completions", "{}", "unsupported_media_type", 415, []string{"Content-Encoding", "gzip, gzip"}},
		{"not encoded", "POST", "/v1/chat/completions", "{}", "invalid_body", 400, []string{"Content-Encoding", "gzip"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := s.request(t, context.Background(), c.name, c.path, c.body, c.headers...)
			q.Method = c.method
			if len(c.headers) > 0 && c.headers[0] == "chunked" {
				q.Body, q.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(c.body))), -1
			}
			resp, body := s.do(t, q)
			if resp.StatusCode != c.status || resp.Header.Get("X-Spokegate-Refused") != c.reason || errorCode(t, body) != c.reason {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
			}
			if len(s.journal.of(c.name)) != 0 {
				t.Error("a refusal left a record")
			}
		})
	}
}

func TestWhatTheEngineGets(t *testing.T) {
	type got struct {
		header http.Header
		body   string
		path   string
	}
	seen := make(chan got, 1)
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen <- got{r.Header, string(b), r.URL.RequestURI()}
		for _, h := range []string{"Server", "X-Request-Id", "X-Spokegate-Team", "X-Envoy-Upstream", "Set-Cookie", "X-Hop"} {
			w.Header().Set(h, "engine")
		}
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Kept", "yes")
		sse(w, "data: [DONE]\n\n")
	}), nil)
	body := `{ "stream":true, "seed":9007199254740993, "messages":[] ,"model":"m" }`
	resp, client := s.do(t, s.request(t, context.Background(), "adm", "/v1/chat/completions?x=1", body,
		"Authorization", "Bearer secret", "X-Api-Key", "secret", "Cookie", "secret", "X-Spokegate-Team", "t", "X-Gateway-Destination-Endpoint", "x",
		"X-Data-Parallel-Rank", "1", "Accept-Encoding", "gzip", "X-Envoy-Attempt-Count", "2", "X-Request-Id", "forged", "Traceparent", "00-1"))
	g := <-seen
	if want := `{ "stream":true, "seed":9007199254740993, "messages":[] ,"model":"m","stream_options":{"include_usage":true,"continuous_usage_stats":true} }`; g.body != want {
		t.Errorf("body %s", g.body)
	}
	for name := range g.header {
		switch name {
		case "Content-Type", "User-Agent", "Content-Length", "X-Request-Id", "Traceparent":
		default:
			t.Errorf("the engine got %s: %s", name, g.header[name])
		}
	}
	if g.header.Get("X-Request-Id") != "adm" || g.path != "/v1/chat/completions" {
		t.Errorf("%v %s", g.header, g.path)
	}
	for _, h := range []string{"Server", "X-Request-Id", "X-Spokegate-Team", "X-Envoy-Upstream", "Set-Cookie", "X-Hop"} {
		if v := resp.Header.Get(h); v != "" {
			t.Errorf("the client got %s: %s", h, v)
		}
	}
	if resp.Header.Get("X-Kept") != "yes" || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", resp.Header)
	}
	r := s.journal.one(t, "adm")
	if r.Id != "adm/served/2/main" || r.Attempt != 2 || r.Kind != "served" || r.Worker != "w1" || r.Spoke != "here" || r.Key != "k" ||
		r.Team != "t" || r.Model != "m" || r.Endpoint != "large" || r.Revision != 3 || r.Operation != "chat" || !r.Stream ||
		r.GetStatus() != 200 || r.GetRequestBytes() != int64(len(body)) || r.GetResponseBytes() != int64(len(client)) || withoutNotes(client) != "data: [DONE]\n\n" || r.EndedAt == nil {
		t.Errorf("record %v", r)
	}
}

// Each event must be there while the engine holds the next one back.
func TestStreamingWithoutDelay(t *testing.T) {
	next := make(chan struct{})
	s := newShim(t, server(t, func(w http.ResponseWriter, _ *http.Request) {
		sse(w)
		for range 3 {
			sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n")
			<-next
		}
		sse(w, "data: [DONE]\n\n")
	}), nil)
	resp, err := s.client.Do(s.request(t, context.Background(), "a", "/v1/chat/completions", streamBody))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, used := range []string{`"completion_tokens":1`, `"events":2`, `"events":3`} {
		for _, want := range []string{"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n", ": spokegate-usage {\"prompt_tokens\":1," + used + "}\n", "\n"} {
			if line, err := in.ReadString('\n'); err != nil || line != want {
				t.Errorf("%q %v", line, err)
			}
		}
		next <- struct{}{}
	}
	want := ": spokegate-usage {\"prompt_tokens\":1,\"completion_tokens\":1,\"terminal\":true}\ndata: [DONE]\n\n"
	if rest, err := io.ReadAll(in); err != nil || string(rest) != want {
		t.Errorf("%q %v", rest, err)
	}
}

func TestClientLeavesBeforeTheFirstByte(t *testing.T) {
	asked, cancelled := make(chan struct{}), make(chan struct{})
	s := newShim(t, server(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
		close(cancelled)
	}), nil)
	ctx, leave := context.WithCancel(context.Background())
	go func() { <-asked; leave() }()
	if _, err := s.client.Do(s.request(t, ctx, "a", "/v1/chat/completions", chatBody)); err == nil {
		t.Fatal("an answer came")
	}
	wait(t, cancelled)
	if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.Status != nil || r.CountedFrom != "none" {
		t.Errorf("%v", r)
	}
	eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
}

// The door's meter tells a stream by its content type, so engines' spellings of it end here.
func TestContentTypeIsCanonical(t *testing.T) {
	for spelled, want := range map[string]string{
		"Text/Event-Stream; charset=utf-8": "text/event-stream", "text/event-stream ;x=y": "text/event-stream",
		"application/problem+json": "application/json", "": "application/json",
	} {
		s := newShim(t, server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{spelled, "text/event-stream"}
			_, _ = io.WriteString(w, strings.Repeat(" ", maxWhole)+"{}\n\ndata: [DONE]\n\n")
		}), nil)
		resp, err := s.client.Do(s.request(t, t.Context(), "a", "/v1/chat/completions", chatBody))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Values("Content-Type"); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %q, want %s", spelled, got, want)
		}
	}
}

func TestEndlessStreamIsCutByTheClient(t *testing.T) {
	cancelled := make(chan struct{})
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(cancelled)
		_, _ = io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		}
	}), nil)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp, err := s.client.Do(s.request(t, ctx, "a", "/v1/chat/completions", streamBody))
	if err != nil {
		t.Fatal(err)
	}
	readEvents(t, resp.Body, 100)
	resp.Body.Close()
	leave()
	wait(t, cancelled)
	if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.GetCompletionTokens() < 100 || r.CountedFrom != "events" {
		t.Errorf("%v", r)
	}
}

// A context vouches for one model: with the body of another one it serves nothing.
func TestContextIsForItsModel(t *testing.T) {
	s := newShim(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), nil)
	q := s.request(t, context.Background(), "a", "/v1/chat/completions", strings.Replace(chatBody, `"m"`, `"dear"`, 1))
	resp, body := s.do(t, q)
	if resp.StatusCode != 403 || resp.Header.Get("X-Spokegate-Refused") != "model_not_allowed" || !strings.Contains(body, "dear") {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
}
