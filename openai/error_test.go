package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err       *Error
		want      string // status type code param
		anthropic string
		headers   string
	}{
		{TokenExpired(), "401 invalid_request_error invalid_api_key ", "authentication_error",
			`www-authenticate=Bearer error="invalid_token", error_description="the token has expired"`},
		{InvalidKey(), "401 invalid_request_error invalid_api_key ", "authentication_error", "www-authenticate=Bearer"},
		{NetworkNotAllowed(), "403 invalid_request_error network_not_allowed ", "permission_error", ""},
		{TooManyFailedKeys(90 * time.Second), "429 requests too_many_failed_keys ", "rate_limit_error", "retry-after=90 retry-after-ms=90000"},
		{ModelNotAllowed("dear"), "403 invalid_request_error model_not_allowed model", "permission_error", ""},
		{ModelNotFound("none"), "404 invalid_request_error model_not_found model", "not_found_error", ""},
		{ModelElsewhere("far", "spoke-b"), "404 invalid_request_error model_elsewhere model", "not_found_error", ""},
		{UnknownURL("/x"), "404 invalid_request_error unknown_url ", "not_found_error", ""},
		{MethodNotAllowed("PUT", "POST"), "405 invalid_request_error method_not_allowed ", "invalid_request_error", ""},
		{InvalidBody("n", "x"), "400 invalid_request_error invalid_body n", "invalid_request_error", ""},
		{BodyTooLarge(32 << 20), "413 invalid_request_error body_too_large ", "request_too_large", ""},
		{UnsupportedMediaType("text/plain"), "415 invalid_request_error unsupported_media_type ", "invalid_request_error", ""},
		{RateLimited("x", time.Nanosecond), "429 requests rate_limit_exceeded ", "rate_limit_error", "retry-after=1 retry-after-ms=1"},
		{RateLimited("x", 1500*time.Millisecond), "429 requests rate_limit_exceeded ", "rate_limit_error", "retry-after=2 retry-after-ms=1500"},
		{ConcurrencyLimited("x", time.Second), "429 requests concurrency_limit_exceeded ", "rate_limit_error", "retry-after=1 retry-after-ms=1000"},
		{TokensLimited("x", 2500*time.Millisecond), "429 tokens rate_limit_exceeded ", "rate_limit_error", "retry-after=3 retry-after-ms=2500"},
		{TokensLimited("x", -1), "429 tokens rate_limit_exceeded ", "rate_limit_error", "retry-after=1 retry-after-ms=1000"},
		{AboveLimit("x"), "429 tokens rate_limit_exceeded ", "rate_limit_error", "x-should-retry=false"},
		{QuotaExceeded("x"), "429 insufficient_quota insufficient_quota ", "rate_limit_error", "x-should-retry=false"},
		{Overloaded("x", 0), "503 server_error overloaded ", "overloaded_error", "retry-after=1 retry-after-ms=1000"},
		{Unavailable("x", 1<<63-1), "503 server_error unavailable ", "overloaded_error", "retry-after=9223372037 retry-after-ms=9223372036855"},
	} {
		t.Run(c.err.Code, func(t *testing.T) {
			for op := Unknown; op <= KeyUsage; op++ {
				checkBody(t, c.err, op, c.want, c.anthropic)
			}
			want := strings.TrimSpace("content-type=application/json " + c.headers)
			if got := headerText(c.err.Headers()); got != want {
				t.Errorf("headers %s, want %s", got, want)
			}
		})
	}
}

func checkBody(t *testing.T, e *Error, op Op, want, anthropic string) {
	t.Helper()
	var body struct {
		Type  string
		Error struct {
			Message, Type string
			Param, Code   *string
		}
	}
	if err := json.Unmarshal(e.Body(op), &body); err != nil {
		t.Fatalf("%v: %v in %s", op, err, e.Body(op))
	}
	if body.Error.Message != e.Message || e.Message == "" {
		t.Errorf("%v: message %q, want %q", op, body.Error.Message, e.Message)
	}
	if op == Messages {
		if body.Type != "error" || body.Error.Type != anthropic || body.Error.Code != nil {
			t.Errorf("got %s", e.Body(op))
		}
		return
	}
	got := fmt.Sprintf("%d %s %s %s", e.Status, body.Error.Type, orEmpty(body.Error.Code), orEmpty(body.Error.Param))
	if got != want || body.Type != "" {
		t.Errorf("%v: got %s, want %s", op, got, want)
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func headerText(hs []Header) string {
	var parts []string
	for _, h := range hs {
		parts = append(parts, h.Name+"="+h.Value)
	}
	return strings.Join(parts, " ")
}

func TestErrorShape(t *testing.T) {
	const openAI = `{"error":{"message":"say \"hi\"\n\u007f","type":"t","param":null,"code":null}}`
	e := &Error{Status: 500, Type: "t", Message: "say \"hi\"\n\x7f"}
	if got := string(e.Body(Chat)); got != openAI {
		t.Errorf("got %s, want %s", got, openAI)
	}
}

func TestClientTextIsCutAndClean(t *testing.T) {
	hostile := "a\r\nb\x00\x1b[31m\u202e\u2028\u0085\xff" + strings.Repeat("ü", 100)
	for _, e := range []*Error{ModelNotFound(hostile), ModelNotAllowed(hostile), UnknownURL(hostile), UnsupportedMediaType(hostile), MethodNotAllowed(hostile, "POST")} {
		if strings.ContainsAny(e.Message, "\r\n\x00\x1b\u202e\u2028\u0085\uFFFD") || strings.Count(e.Message, "ü") > 64 || !strings.Contains(e.Message, "ab[31mü") {
			t.Errorf("%q", e.Message)
		}
	}
}

func TestRateLimitHeaders(t *testing.T) {
	for _, c := range []struct {
		kind      string
		remaining int64
		reset     time.Duration
		want      string // remaining, reset
	}{
		{"requests", 9, time.Second, "9 1s"},
		{"requests", 0, 6 * time.Minute, "0 6m0s"},
		{"requests", -3, -time.Second, "0 0s"},
		{"tokens", 1, 1500*time.Microsecond + 1, "1 2ms"},
		{"tokens", 10, 59 * time.Second, "10 59s"},
	} {
		remaining, reset, _ := strings.Cut(c.want, " ")
		want := "x-ratelimit-limit-K=10 x-ratelimit-remaining-K=" + remaining + " x-ratelimit-reset-K=" + reset
		want = strings.ReplaceAll(want, "K", c.kind)
		if got := headerText(RateLimitHeaders(c.kind, 10, c.remaining, c.reset)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestModels(t *testing.T) {
	if got := string(ModelList(nil, 5)); got != `{"object":"list","data":[]}` {
		t.Errorf("got %s", got)
	}
	one := `{"id":"a\"b","object":"model","created":5,"owned_by":"spokegate"}`
	if got := string(ModelObject(`a"b`, 5)); got != one {
		t.Errorf("got %s", got)
	}
	want := `{"object":"list","data":[` + one + `,{"id":"c/d","object":"model","created":5,"owned_by":"spokegate"}]}`
	if got := string(ModelList([]string{`a"b`, "c/d"}, 5)); got != want {
		t.Errorf("got %s", got)
	}
}

func TestRoute(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/v1/chat/completions", "chat  "},
		{"POST", "/v1/completions", "completions  "},
		{"POST", "/v1/embeddings", "embeddings  "},
		{"POST", "/v1/responses", "responses  "},
		{"POST", "/v1/messages", "messages  "},
		{"GET", "/v1/models", "models  "},
		{"GET", "/v1/usage", "usage  "},
		{"POST", "/v1/usage", "usage  405"},
		{"GET", "/v1/usage/x", "unknown  404"},
		{"GET", "/v1/models/sim-large", "models sim-large "},
		{"GET", "/v1/models/org/name", "models org/name "},
		{"GET", "/v1/models/org%2Fname%2520x", "models org/name%20x "},
		{"GET", "/v1/models/", "unknown  404"},
		{"GET", "/v1/models/%zz", "unknown  404"},
		{"GET", "/v1/models/%ff", "unknown  404"},
		{"GET", "/v1/chat/completions", "chat  405"},
		{"post", "/v1/chat/completions", "chat  405"},
		{"POST", "/v1/models", "models  405"},
		{"DELETE", "/v1/models/x", "models  405"},
		{"GET", "/v1/messages", "messages  405"},
		{"POST", "/v1/chat/completions/", "unknown  404"},
		{"POST", "/V1/chat/completions", "unknown  404"},
		{"POST", "/v1/chat%2Fcompletions", "unknown  404"},
		{"POST", "/v1/fine_tuning/jobs", "unknown  404"},
		{"POST", "/v1/messages/count_tokens", "unknown  404"},
		{"POST", "", "unknown  404"},
	} {
		op, arg, err := Route(c.method, c.path)
		got := op.String() + " " + arg + " "
		if err != nil {
			got += fmt.Sprint(err.Status)
		}
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.path, got, c.want)
		}
	}
}
