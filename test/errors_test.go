package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var anthropicTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
	404: "not_found_error", 405: "invalid_request_error", 413: "request_too_large", 415: "invalid_request_error",
	429: "rate_limit_error", 503: "overloaded_error"}

// checkRefusal wants an error as clients of the path expect it. code "": any that is not empty.
func checkRefusal(r reply, path, code string) error {
	if r.status < 400 {
		return fmt.Errorf("want an error, got %v", r)
	}
	if ct := r.header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		return fmt.Errorf("content-type is %q in %v", ct, r)
	}
	if len(r.header.Values("X-Request-Id")) != 1 || r.admission() == "" {
		return fmt.Errorf("there is no x-request-id in %v", r)
	}
	if challenge, _, _ := strings.Cut(r.header.Get("Www-Authenticate"), " "); r.status == 401 && challenge != "Bearer" {
		return fmt.Errorf("there is no www-authenticate: Bearer in %v", r)
	}
	if r.status == 429 && code != "insufficient_quota" && (r.header.Get("Retry-After") == "" || r.header.Get("Retry-After-Ms") == "") {
		return fmt.Errorf("there is no retry-after in %v", r)
	}
	for name := range r.header {
		if strings.HasPrefix(name, "X-Spokegate-") || strings.HasPrefix(name, "X-Envoy-") || strings.HasPrefix(name, "X-Gateway-") {
			return fmt.Errorf("the header %s is nothing for clients: %v", name, r)
		}
	}
	if strings.HasPrefix(path, "/v1/messages") {
		return checkAnthropic(r)
	}
	return checkOpenAI(r, code)
}

func checkOpenAI(r reply, code string) error {
	var body struct {
		Error *struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(r.body, &body); err != nil || body.Error == nil {
		return fmt.Errorf("the body is no OpenAI error (%v): %v", err, r)
	}
	e := body.Error
	want := []string{"invalid_request_error"}
	switch {
	case r.status == 429:
		want = []string{"requests", "tokens", "insufficient_quota"}
	case r.status >= 500:
		want = []string{"server_error"}
	}
	switch {
	case e.Message == "" || e.Code == "" || !slices.Contains(want, e.Type):
		return fmt.Errorf("the error has no message or code, or a type that is none of %v: %v", want, r)
	case code != "" && e.Code != code:
		return fmt.Errorf("want code %s, got %v", code, r)
	}
	return nil
}

func checkAnthropic(r reply) error {
	var body struct {
		Type  string
		Error *struct{ Type, Message string }
	}
	if err := json.Unmarshal(r.body, &body); err != nil || body.Error == nil || body.Type != "error" {
		return fmt.Errorf("the body is no Anthropic error (%v): %v", err, r)
	}
	if want := anthropicTypes[r.status]; body.Error.Message == "" || want != "" && body.Error.Type != want {
		return fmt.Errorf("want an error of type %s and a message, got %v", want, r)
	}
	return nil
}

// wantRefusal is checkRefusal for one status.
func wantRefusal(t testing.TB, r reply, path string, status int, code string) {
	t.Helper()
	if r.status != status {
		t.Fatalf("want %d, got %v", status, r)
	}
	if err := checkRefusal(r, path, code); err != nil {
		t.Fatal(err)
	}
}
