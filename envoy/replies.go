package envoy

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/spokegate/spokegate/openai"
)

// retryAfter is what a client is told when Envoy itself has to say 503.
const retryAfter = time.Second

// reply is one kind of local reply: those whose code details fulfil the condition, a CEL expression.
type reply struct {
	when string
	err  *openai.Error
}

const (
	details = "response.code_details"
	refused = "ext_authz_denied"
)

func is(s string) string         { return details + " == '" + s + "'" }
func startsWith(s string) string { return details + ".startsWith('" + s + "')" }
func endsWith(s string) string   { return details + ".endsWith('" + s + "')" }

func anyOf(conditions ...string) string { return "(" + strings.Join(conditions, " || ") + ")" }

// replies lists what Envoy answers by itself, the first that fits wins. There is no rule on response flags and no default
// body: both would overwrite the answers of ext_authz and of a picker.
func (d Door) replies() []reply {
	server := func(status int, code, message string) *openai.Error {
		return &openai.Error{Status: status, Type: "server_error", Code: code, Message: message, RetryAfter: retryAfter}
	}
	return []reply{
		// A check that admission's HTTP server could not read: it says so in plain text, and by itself.
		{is(refused) + " && response.headers['content-type'].startsWith('text/plain')", notHTTP()},
		{anyOf(is("ext_authz_error"), is("ext_authz_invalid"), startsWith("ext_proc_error")), openai.Unavailable("Admission is not available at the moment.", retryAfter)},
		{is("request_payload_too_large"), openai.BodyTooLarge(d.BodyLimit)},
		{startsWith("rbac_access_denied"), client(403, "forbidden", "This request was not admitted.")},
		{anyOf(startsWith("upstream_reset_before_response_started{overflow"), is("overload"), startsWith("envoy_overloaded")),
			openai.Overloaded("The service is overloaded.", retryAfter)},
		{anyOf(is("no_healthy_upstream"), is("cluster_not_found"), is("route_not_found"), startsWith("upstream_reset_before_response_started")),
			openai.Unavailable("No worker could take the request.", retryAfter)},
		{anyOf(is("request_header_timeout"), is("request_overall_timeout")), client(408, "request_timeout", "The request took too long to arrive.")},
		{endsWith("timeout"), server(504, "timeout", "The request took too long.")},
		{anyOf(is("request_payload_exceeded_retry_buffer_limit"), is("response_payload_too_large")),
			server(503, "unavailable", "The worker's answer could not be passed on.")},
		{is("upgrade_failed"), client(403, "forbidden", "Upgrades are not offered.")},
	}
}

// earlyReplies are those to what is no acceptable HTTP. They are sent before the request has an id.
func earlyReplies() []reply {
	return []reply{
		{anyOf(startsWith("path_normalization_failed"), startsWith("http1."), startsWith("http2."), startsWith("http."), is("missing_host_header"),
			is("missing_path_rejected"), startsWith("request_headers_failed_strict_check")),
			notHTTP()},
		{is("absolute_path_rejected"), openai.UnknownURL("*")},
		{is("low_version"), client(426, "invalid_request", "HTTP/1.1 or HTTP/2 is needed.")},
	}
}

func notHTTP() *openai.Error {
	return client(400, "invalid_request", "The request is not acceptable HTTP.")
}

func client(status int, code, message string) *openai.Error {
	return &openai.Error{Status: status, Type: "invalid_request_error", Code: code, Message: message}
}

// localReplies gives each reply in two shapes: Anthropic's under /v1/messages, OpenAI's elsewhere and where there may be
// no path yet.
func (d Door) localReplies() *hcmv3.LocalReplyConfig {
	c := &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{meant(http.StatusOK), meant(http.StatusServiceUnavailable)}}
	for _, r := range d.replies() {
		c.Mappers = append(c.Mappers,
			mapper(r.when+" && request.path.startsWith('/v1/messages')", r.err, openai.Messages),
			mapper(r.when, r.err, openai.Chat))
	}
	for _, r := range earlyReplies() {
		m := mapper(r.when, r.err, openai.Chat)
		m.HeadersToAdd = append(m.HeadersToAdd, overwrite(RequestIDHeader, "%UNIQUE_ID%"))
		c.Mappers = append(c.Mappers, m)
	}
	return c
}

// meant gives an answer of admission's the status that it means, and leaves all else of it.
func meant(status int) *hcmv3.ResponseMapper {
	return &hcmv3.ResponseMapper{
		Filter:     cel(fmt.Sprintf("%s && response.code == %d", is(refused), DeniedAs(status))),
		StatusCode: u32(uint32(status)),
	}
}

func mapper(when string, e *openai.Error, shape openai.Op) *hcmv3.ResponseMapper {
	m := &hcmv3.ResponseMapper{
		Filter: cel(when),
		BodyFormatOverride: &corev3.SubstitutionFormatString{
			ContentType: "application/json",
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				// A percent sign would begin a command of Envoy's.
				Specifier: &corev3.DataSource_InlineString{InlineString: strings.ReplaceAll(string(e.Body(shape)), "%", "%%")},
			}},
		},
	}
	if e.Status != 400 { // what is wrong with a client's HTTP, Envoy says more exactly, as with 431
		m.StatusCode = u32(uint32(e.Status))
	}
	if shape == openai.Messages {
		m.HeadersToAdd = append(m.HeadersToAdd, anthropicID())
	}
	for _, h := range e.Headers() {
		if h.Name != "content-type" {
			m.HeadersToAdd = append(m.HeadersToAdd, overwrite(h.Name, h.Value))
		}
	}
	return m
}

func cel(expression string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name:       "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: pack(&celv3.ExpressionFilter{Expression: expression})},
		},
	}}
}
