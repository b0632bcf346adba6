package api

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// Problem is an error as RFC 9457 writes it.
type Problem struct {
	Type      string  `json:"type" doc:"Which kind it is: urn:spokegate:problem: and a word, the same for ever."`
	Title     string  `json:"title" doc:"The kind in words."`
	Status    int     `json:"status" doc:"The status of the answer."`
	Detail    string  `json:"detail" doc:"What is wrong here, and what to do."`
	RequestID string  `json:"request_id" doc:"Names the request in the hub's log."`
	Faults    []Fault `json:"faults,omitempty" doc:"Each thing that is wrong with what was sent."`

	retry time.Duration // when to come back
	allow []string      // methods that would do
}

// Fault is one thing that is wrong.
type Fault struct {
	Path string `json:"path" doc:"Where it is, such as teams[research].limits[0].burst."`
	Text string `json:"text" doc:"What is wrong, and what is expected."`
}

func (p *Problem) Error() string { return p.Detail }

// kinds of problems: the word of the type, and its title.
var kinds = map[int][2]string{
	http.StatusBadRequest:            {"bad_request", "The request cannot be understood"},
	http.StatusUnauthorized:          {"unauthorized", "No valid token"},
	http.StatusForbidden:             {"forbidden", "The token does not permit this"},
	http.StatusNotFound:              {"not_found", "There is no such thing"},
	http.StatusMethodNotAllowed:      {"method_not_allowed", "Not with this method"},
	http.StatusNotAcceptable:         {"not_acceptable", "Not in this form"},
	http.StatusConflict:              {"conflict", "Something else came before"},
	http.StatusPreconditionFailed:    {"changed_meanwhile", "It is not as you last saw it"},
	http.StatusRequestEntityTooLarge: {"too_large", "The body is too large"},
	http.StatusUnsupportedMediaType:  {"unsupported_media_type", "Want JSON"},
	http.StatusUnprocessableEntity:   {"invalid", "It is not valid"},
	http.StatusPreconditionRequired:  {"precondition_required", "Say what you expect to be there"},
	http.StatusTooManyRequests:       {"too_many_requests", "Too many wrong tokens"},
	http.StatusInternalServerError:   {"internal", "The hub has failed"},
	http.StatusServiceUnavailable:    {"unavailable", "Not now"},
}

func newProblem(status int, detail string) *Problem {
	k := kinds[status]
	return &Problem{Type: "urn:spokegate:problem:" + k[0], Title: k[1], Status: status, Detail: detail}
}

func badRequest(detail string) *Problem { return newProblem(http.StatusBadRequest, detail) }

// notFound says it of a thing, and not whether it is there for others.
func notFound(what string) *Problem {
	return newProblem(http.StatusNotFound, what+": there is none that your token may see.")
}

// write sends the problem. No text of it repeats a key, wherever it came from.
func (p *Problem) write(w http.ResponseWriter, id string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="spokegate hub"`)
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(p.retry/time.Second)+1))
	}
	if len(p.allow) > 0 {
		h.Set("Allow", strings.Join(p.allow, ", "))
	}
	told := *p
	told.RequestID, told.Detail = id, identity.Mask(p.Detail)
	told.Faults = nil
	for _, f := range p.Faults {
		told.Faults = append(told.Faults, Fault{identity.Mask(f.Path), identity.Mask(f.Text)})
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(told)
}
