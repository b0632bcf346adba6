package extauthz

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// answer is a decision before it is put into Envoy's words. The zero value refuses.
type answer struct {
	id     string // of the request
	passes bool
	op     openai.Op

	// As far as they are known:
	revision     uint64
	key          *policy.Key
	asked, model *policy.Model

	// Where passes is true and the request was admitted:
	admission string
	endpoint  string
	context   string
	prefill   string   // context of the prefill leg; empty: there is none
	workers   []string // best first; empty: a picker follows in the chain
	inHeader  bool     // they are named in a header, too
	ranks     string   // as in RanksHeader; empty: none has several

	// Where passes is false: an error, or a body that the door itself answers with.
	refusal  *openai.Error
	held     bool   // it is held back, and has its place
	reason   string // why the credential is refused; for the log alone
	wrong    error  // what is wrong with a JWT; for the log alone
	local    []byte
	unserved string // admitted, but refused all the same: why no worker takes it

	// On both: how the worker was chosen, for whoever may know and asks; empty: nothing is told.
	explained string

	// On both: the limits on requests and on tokens that bind, and which of the two is the stricter.
	requests, tokens, binding *limits.Standing
}

// pass lets a request through to the next step; by itself it admits nothing (RBAC demands a context).
func pass() answer { return answer{passes: true} }

// standing adds how the limits stand, on requests and on tokens.
func (a answer) standing(d limits.Decision) answer {
	a.requests, a.tokens, a.binding = d.Requests, d.Tokens, d.Binding()
	return a
}

// code is the decision's name in metrics: "admitted", "head", "local", or the error's code.
func (a answer) code() string {
	switch {
	case a.passes && a.admission != "":
		return "admitted"
	case a.passes:
		return "head"
	case a.refusal != nil:
		return a.refusal.Code
	case a.local != nil:
		return "local"
	}
	return "denied"
}

// upstream are the headers that go to the worker of an admitted request.
func (a answer) upstream() []openai.Header {
	if a.admission == "" {
		return nil
	}
	list := append(make([]openai.Header, 0, 5), openai.Header{Name: envoy.ContextHeader, Value: a.context},
		openai.Header{Name: envoy.EndpointHeader, Value: envoy.ClusterName(a.endpoint)})
	if n := len(a.workers); n > 0 {
		list = append(list, openai.Header{Name: envoy.MaxRetriesHeader, Value: strconv.Itoa(n - 1)})
	}
	for _, h := range []openai.Header{{Name: envoy.PrefillContextHeader, Value: a.prefill}, {Name: envoy.RanksHeader, Value: a.ranks}} {
		if h.Value != "" {
			list = append(list, h)
		}
	}
	return list
}

// denial is what the client gets of a request that does not pass.
func (a answer) denial() (status int, body []byte, headers []openai.Header) {
	status, body, headers = http.StatusOK, a.local, []openai.Header{{Name: "content-type", Value: "application/json"}}
	if a.local == nil {
		e := a.refusal
		if e == nil { // the zero answer
			e = openai.Unavailable("the request was not admitted", 0)
		}
		status, body, headers = e.Status, e.Body(a.op), e.Headers()
	}
	if a.op == openai.Messages && a.id != "" {
		headers = append(headers, openai.Header{Name: envoy.AnthropicIDHeader, Value: a.id})
	}
	return status, body, a.told(headers)
}

// destination names the workers as Envoy reads them.
func (a answer) destination() string { return strings.Join(a.workers, ",") }

// told appends what the client is told in headers of limits and of the choice.
func (a answer) told(to []openai.Header) []openai.Header {
	if a.explained != "" {
		to = append(to, openai.Header{Name: envoy.ExplainHeader, Value: a.explained})
	}
	if s := a.requests; s != nil {
		to = append(to, openai.RateLimitHeaders("requests", s.Max, s.Remaining, s.Reset)...)
	}
	if s := a.tokens; s != nil {
		to = append(to, openai.RateLimitHeaders("tokens", s.Max, s.Remaining, s.Reset)...)
	}
	return to
}
