package openai

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxEcho is how many characters of a client's own text a message repeats.
const maxEcho = 64

// minRetry is the wait that a refusal names when its maker knew none: SDKs would come again at once otherwise.
const minRetry = time.Second

const invalidRequest = "invalid_request_error"

// InvalidKey refuses a request with no key or with one that is unknown, expired or revoked. It does not say which, and never
// repeats the key.
func InvalidKey() *Error {
	return &Error{Status: 401, Type: invalidRequest, Code: "invalid_api_key",
		Message: "No valid API key was given. Send a key of this gateway as: Authorization: Bearer KEY"}
}

// TokenExpired refuses a JWT that was good once: its client can get another from where it had this one. The challenge is that
// of RFC 6750.
func TokenExpired() *Error {
	return &Error{Status: 401, Type: invalidRequest, Code: "invalid_api_key", challenge: ` error="invalid_token", error_description="the token has expired"`,
		Message: "The token has expired. Get a new one from its issuer."}
}

// NetworkNotAllowed refuses a key that is used from outside of its networks. It repeats no address.
func NetworkNotAllowed() *Error {
	return &Error{Status: 403, Type: invalidRequest, Code: "network_not_allowed",
		Message: "This key may not be used from the network that the request came from."}
}

// TooManyFailedKeys refuses to look at a key, as the same source has sent too many that were none. It says nothing about
// this one.
func TooManyFailedKeys(retry time.Duration) *Error {
	return &Error{Status: 429, Type: "requests", Code: "too_many_failed_keys", RetryAfter: wait(retry),
		Message: "Too many requests with no valid API key came from your address. Check the key before you try again."}
}

// ModelNotAllowed refuses a model that exists but not for this key.
func ModelNotAllowed(model string) *Error {
	return &Error{Status: 403, Type: invalidRequest, Code: "model_not_allowed", Param: "model",
		Message: fmt.Sprintf("This key may not use the model '%s'.", echo(model))}
}

// ModelNotFound refuses a model that nobody serves.
func ModelNotFound(model string) *Error {
	return &Error{Status: 404, Type: invalidRequest, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("The model '%s' does not exist.", echo(model))}
}

// ModelElsewhere refuses a model that is served behind other doors.
func ModelElsewhere(model, spoke string) *Error {
	return &Error{Status: 404, Type: invalidRequest, Code: "model_elsewhere", Param: "model",
		Message: fmt.Sprintf("The model '%s' is not served here, but in '%s'.", echo(model), spoke)}
}

// UnknownURL refuses a path that is not in the route table.
func UnknownURL(path string) *Error {
	return &Error{Status: 404, Type: invalidRequest, Code: "unknown_url",
		Message: fmt.Sprintf("Unknown request URL: %s", echo(path))}
}

// MethodNotAllowed refuses a known path with a method that it does not have.
func MethodNotAllowed(method, want string) *Error {
	return &Error{Status: 405, Type: invalidRequest, Code: "method_not_allowed",
		Message: fmt.Sprintf("Not allowed to %s on this URL; use %s.", echo(method), want)}
}

// InvalidBody refuses a body. param is the member at fault, or empty.
func InvalidBody(param, msg string) *Error {
	return &Error{Status: 400, Type: invalidRequest, Code: "invalid_body", Param: echo(param), Message: msg}
}

// BodyTooLarge refuses a body over limit bytes.
func BodyTooLarge(limit int64) *Error {
	return &Error{Status: 413, Type: invalidRequest, Code: "body_too_large",
		Message: fmt.Sprintf("The request body is larger than %d bytes.", limit)}
}

// UnsupportedMediaType refuses a body that is not JSON, or in an encoding that the door does not decode. got is what the
// client named.
func UnsupportedMediaType(got string) *Error {
	return &Error{Status: 415, Type: invalidRequest, Code: "unsupported_media_type",
		Message: fmt.Sprintf("Send the body as application/json, plain or in gzip or zstd, not as '%s'.", echo(got))}
}

// RateLimited refuses a request over a limit of requests a second.
func RateLimited(msg string, retry time.Duration) *Error {
	return &Error{Status: 429, Type: "requests", Code: "rate_limit_exceeded", Message: msg, RetryAfter: wait(retry)}
}

// ConcurrencyLimited refuses a request over a limit of requests at a time.
func ConcurrencyLimited(msg string, retry time.Duration) *Error {
	return &Error{Status: 429, Type: "requests", Code: "concurrency_limit_exceeded", Message: msg, RetryAfter: wait(retry)}
}

// TokensLimited refuses a request over a limit of tokens a minute.
func TokensLimited(msg string, retry time.Duration) *Error {
	return &Error{Status: 429, Type: "tokens", Code: "rate_limit_exceeded", Message: msg, RetryAfter: wait(retry)}
}

// AboveLimit refuses a request that alone asks for more tokens than a limit of tokens a minute ever has: it can never pass
// as it is.
func AboveLimit(msg string) *Error {
	return &Error{Status: 429, Type: "tokens", Code: "rate_limit_exceeded", Message: msg, Final: true}
}

// QuotaExceeded refuses a request over a quota of a day or a month, of requests or of tokens. msg says when it begins anew.
func QuotaExceeded(msg string) *Error {
	return &Error{Status: 429, Type: "insufficient_quota", Code: "insufficient_quota", Message: msg, Final: true}
}

// Overloaded refuses a request that no worker has room for.
func Overloaded(msg string, retry time.Duration) *Error {
	return &Error{Status: 503, Type: "server_error", Code: "overloaded", Message: msg, RetryAfter: wait(retry)}
}

// Shed refuses a request that may be refused first, since all workers are busy.
func Shed(retry time.Duration) *Error {
	return &Error{Status: 429, Type: "requests", Code: "shed", RetryAfter: wait(retry),
		Message: "All workers of this model are busy, and this request is of those that are refused first."}
}

// Unavailable refuses a request because a part of the gateway, or every worker, is away.
func Unavailable(msg string, retry time.Duration) *Error {
	return &Error{Status: 503, Type: "server_error", Code: "unavailable", Message: msg, RetryAfter: wait(retry)}
}

func wait(retry time.Duration) time.Duration {
	if retry <= 0 {
		return minRetry
	}
	return retry
}

// echo makes a client's own text fit to be repeated: at most 64 characters, nothing that controls a terminal or a log.
func echo(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError {
			continue
		}
		if n == maxEcho {
			return b.String() + "…"
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
