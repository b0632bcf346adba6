package extauthz

import (
	"mime"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
)

// question is what a request asks, in our words. Header values are as Envoy gives them: a header sent twice arrives
// joined by a comma, which no key, type or encoding that we accept contains.
type question struct {
	id              string // Envoy's own, so that it is unique
	clientRequestID string
	clientTrace     string // the traceparent that the client sent; only where there is tracing
	method          string
	target          string // path and query
	host            string
	source          string // the IP of whoever is connected to Envoy; empty: none
	clientAddress   string // the client's IP where proxies stand before Envoy
	authorization   string
	apiKey          string
	contentType     string
	contentEncoding string
	contentLength   int64  // -1: not told
	explain         string // wants the choice of a worker explained: see asksWhy
	session         string // what the client calls its conversation: a hint to bring its requests to one worker
	body            []byte // only until the answer is made
	text            []byte // the body where Envoy was not told to pack it as bytes; only while it is read
}

// read are the headers that become part of a question, content-length besides.
var read = []struct {
	name string
	to   func(*question) *string
}{
	{envoy.RequestIDHeader, func(q *question) *string { return &q.id }},
	{envoy.ClientRequestIDHeader, func(q *question) *string { return &q.clientRequestID }},
	{envoy.ClientTraceHeader, func(q *question) *string { return &q.clientTrace }},
	{envoy.ClientAddressHeader, func(q *question) *string { return &q.clientAddress }},
	{"authorization", func(q *question) *string { return &q.authorization }},
	{"x-api-key", func(q *question) *string { return &q.apiKey }},
	{envoy.ExplainHeader, func(q *question) *string { return &q.explain }},
	{"x-session-id", func(q *question) *string { return &q.session }},
	{"content-type", func(q *question) *string { return &q.contentType }},
	{"content-encoding", func(q *question) *string { return &q.contentEncoding }},
}

// credential is the one secret that the request carries, or why there is none. A client may send it in both headers, as some
// SDKs do, but not two different ones.
func (q question) credential() (secret, reason string) {
	if q.authorization == "" {
		if q.apiKey == "" {
			return "", noCredential
		}
		return q.apiKey, ""
	}
	scheme, secret, _ := strings.Cut(q.authorization, " ")
	secret = strings.Trim(secret, " ")
	if !strings.EqualFold(scheme, "bearer") || q.apiKey != "" && q.apiKey != secret {
		return "", malformed
	}
	return secret, ""
}

// conversation is the session as far as it counts.
func (q question) conversation() string { return q.session[:min(len(q.session), router.MostSession)] }

// address is the client's; the zero value: not known.
func (q question) address() netip.Addr {
	said := q.source
	if q.clientAddress != "" {
		said = q.clientAddress
	}
	a, err := netip.ParseAddr(said)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// checkHost refuses two Host headers, which arrive joined, as RFC 9112 section 3.2 wants, and one that names a user: RFC 9110 section
// 4.2.4 lets no request have that, and the HTTP server that is asked about large bodies would not read it.
func (q question) checkHost() *openai.Error {
	switch {
	case strings.Contains(q.host, ","):
		return openai.InvalidBody("", "the request has more than one Host header")
	case strings.Contains(q.host, "@"):
		return openai.InvalidBody("", "the Host header names a user")
	}
	return nil
}

func (q question) path() string {
	path, _, _ := strings.Cut(q.target, "?")
	return path
}

// checkQuery refuses a query that names a model: it would not be the one that is checked. Other parameters pass.
func (q question) checkQuery() *openai.Error {
	_, query, _ := strings.Cut(q.target, "?")
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return openai.InvalidBody("", "the query string is malformed")
	}
	for name := range values {
		if strings.EqualFold(name, "model") {
			return openai.InvalidBody("model", "the model belongs into the body, not into the query string")
		}
	}
	return nil
}

// checkType demands JSON, plain or in an encoding that is decoded.
func (q question) checkType() *openai.Error {
	if t, _, err := mime.ParseMediaType(q.contentType); err != nil || t != "application/json" {
		return openai.UnsupportedMediaType(q.contentType)
	}
	return openai.CheckEncoding(q.contentEncoding)
}
