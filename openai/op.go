package openai

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Op is what a request asks for. It decides the shape of errors and where a response carries its usage.
type Op uint8

// The operations that a door serves. Unknown is no operation: nothing may be admitted under it.
const (
	Unknown Op = iota
	Chat
	Completions
	Embeddings
	Responses
	Messages
	Models   // GET /v1/models and /v1/models/ID
	KeyUsage // GET /v1/usage
)

// Local says that the door answers by itself, without a body, a model or a flight.
func (o Op) Local() bool { return o == Models || o == KeyUsage }

// String returns the operation's name as usage records and metrics write it.
func (o Op) String() string {
	switch o {
	case Chat:
		return "chat"
	case Completions:
		return "completions"
	case Embeddings:
		return "embeddings"
	case Responses:
		return "responses"
	case Messages:
		return "messages"
	case Models:
		return "models"
	case KeyUsage:
		return "usage"
	default:
		return "unknown"
	}
}

const modelPrefix = "/v1/models/"

// Route finds the operation of a request. path is the path alone, without a query; it must match exactly (no trailing slash,
// no dot segments, no escapes but in a model's id). arg is the model's id for GET /v1/models/{id}, percent-decoded once; it
// may contain slashes.
//
// An unknown path is a 404, a known path with another method a 405; op is set with the 405 too, so that its body takes the
// operation's shape.
func Route(method, path string) (op Op, arg string, err *Error) {
	op, arg, want := lookUp(path)
	if op == Unknown {
		return Unknown, "", UnknownURL(path)
	}
	if method != want {
		return op, "", MethodNotAllowed(method, want)
	}
	return op, arg, nil
}

func lookUp(path string) (op Op, arg, method string) {
	switch path {
	case "/v1/chat/completions":
		return Chat, "", "POST"
	case "/v1/completions":
		return Completions, "", "POST"
	case "/v1/embeddings":
		return Embeddings, "", "POST"
	case "/v1/responses":
		return Responses, "", "POST"
	case "/v1/messages":
		return Messages, "", "POST"
	case "/v1/models":
		return Models, "", "GET"
	case "/v1/usage":
		return KeyUsage, "", "GET"
	}
	if id, ok := modelID(path); ok {
		return Models, id, "GET"
	}
	return Unknown, "", ""
}

func modelID(path string) (string, bool) {
	raw, ok := strings.CutPrefix(path, modelPrefix)
	if !ok {
		return "", false
	}
	id, err := url.PathUnescape(raw)
	return id, err == nil && id != "" && utf8.ValidString(id)
}
