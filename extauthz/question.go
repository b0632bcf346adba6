package extauthz

import (
	"mime"
	"net/url"
	"strings"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
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
	source          string // the client's IP, as Envoy knows it; empty: none
	authorization   string
	apiKey          string
	contentType     string
	contentEncoding string
	contentLength   int64  // -1: not told
	body            []byte // only until the answer is made
}

// credential hashes the one key that the request carries. A client may send it in both headers, as some SDKs do, but
// not two different ones.
func (q question) credential() (identity.Hash, bool) {
	var secrets []string
	if q.authorization != "" {
		scheme, rest, _ := strings.Cut(q.authorization, " ")
		if !strings.EqualFold(scheme, "bearer") {
			return identity.Hash{}, false
		}
		secrets = append(secrets, strings.Trim(rest, " "))
	}
	if q.apiKey != "" {
		secrets = append(secrets, q.apiKey)
	}
	if len(secrets) == 0 {
		return identity.Hash{}, false
	}
	first, ok := identity.ParseKey(secrets[0])
	for _, s := range secrets[1:] {
		if h, fits := identity.ParseKey(s); !fits || h != first {
			return identity.Hash{}, false
		}
	}
	return first, ok
}

// checkHost refuses two Host headers, which arrive joined: RFC 9112 section 3.2 wants 400.
func (q question) checkHost() *openai.Error {
	if strings.Contains(q.host, ",") {
		return openai.InvalidBody("", "the request has more than one Host header")
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

// checkType demands JSON in plain bytes.
func (q question) checkType() *openai.Error {
	if t, _, err := mime.ParseMediaType(q.contentType); err != nil || t != "application/json" {
		return openai.UnsupportedMediaType(q.contentType)
	}
	if q.contentEncoding != "" && !strings.EqualFold(q.contentEncoding, "identity") {
		return openai.UnsupportedMediaType("content-encoding " + q.contentEncoding)
	}
	return nil
}
