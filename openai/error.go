package openai

import (
	"strconv"
	"time"
)

// Error is a refusal: what the client is told and whether it should come again. Every refusal of a door is made by one of
// the constructors in this package, so that kinds and protocol answers meet in one place.
type Error struct {
	Status  int    // HTTP status
	Type    string // OpenAI's error type, such as "invalid_request_error"
	Code    string // OpenAI's error code, such as "invalid_api_key"
	Param   string // the body's member at fault; empty: none
	Message string // for people; never holds a secret

	RetryAfter time.Duration // when to come again; 0: not said
	Final      bool          // coming again soon cannot help: SDKs are told not to, as they would on their own

	challenge string // of a 401, what www-authenticate says behind Bearer; empty: nothing
}

// Header is one response header; names are in lower case.
type Header struct{ Name, Value string }

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Body returns the response body: Anthropic's shape for Messages, OpenAI's for all else.
func (e *Error) Body(op Op) []byte {
	if op == Messages {
		return e.anthropic()
	}
	b := appendQuoted([]byte(`{"error":{"message":`), e.Message)
	b = appendQuoted(append(b, `,"type":`...), e.Type)
	b = appendOrNull(append(b, `,"param":`...), e.Param)
	b = appendOrNull(append(b, `,"code":`...), e.Code)
	return append(b, "}}"...)
}

func (e *Error) anthropic() []byte {
	b := appendQuoted([]byte(`{"type":"error","error":{"type":`), e.anthropicType())
	b = appendQuoted(append(b, `,"message":`...), e.Message)
	return append(b, "}}"...)
}

func (e *Error) anthropicType() string {
	switch {
	case e.Status == 401:
		return "authentication_error"
	case e.Status == 403:
		return "permission_error"
	case e.Status == 404:
		return "not_found_error"
	case e.Status == 413:
		return "request_too_large"
	case e.Status == 429:
		return "rate_limit_error"
	case e.Status == 504:
		return "timeout_error"
	case e.Status == 503 || e.Status == 529:
		return "overloaded_error"
	case e.Status >= 500:
		return "api_error"
	default:
		return "invalid_request_error"
	}
}

// Headers returns the headers that go with the body: content-type always; retry-after (whole seconds, rounded up) and
// retry-after-ms where a wait is known; www-authenticate with a 401; x-should-retry: false where it is final.
func (e *Error) Headers() []Header {
	h := []Header{{"content-type", "application/json"}}
	if e.Status == 401 {
		h = append(h, Header{"www-authenticate", "Bearer" + e.challenge})
	}
	if e.RetryAfter > 0 {
		h = append(h,
			Header{"retry-after", strconv.FormatInt(roundUp(e.RetryAfter, time.Second), 10)},
			Header{"retry-after-ms", strconv.FormatInt(roundUp(e.RetryAfter, time.Millisecond), 10)})
	}
	if e.Final {
		h = append(h, Header{"x-should-retry", "false"})
	}
	return h
}

// RateLimitHeaders returns the x-ratelimit headers of the limit that binds. kind is "requests" or "tokens"; reset is the
// time until the limit is whole again, written as a duration such as 1s or 6m0s, rounded up to milliseconds.
func RateLimitHeaders(kind string, limit, remaining int64, reset time.Duration) []Header {
	whole := time.Duration(roundUp(max(reset, 0), time.Millisecond)) * time.Millisecond
	names := limitNames[kind]
	return []Header{
		{names[0], strconv.FormatInt(limit, 10)},
		{names[1], strconv.FormatInt(max(remaining, 0), 10)},
		{names[2], whole.String()},
	}
}

// limitNames spares each answer the making of the names.
var limitNames = map[string][3]string{
	"requests": {"x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"},
	"tokens":   {"x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"},
}

// roundUp returns how many units cover d. The remainder decides, not a sum, so that the largest durations do not overflow.
func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
