package epp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
)

func server(p *Picker) *Server {
	return &Server{Picker: p, Endpoint: "large", BodyLimit: 1 << 20, Now: time.Now}
}

func reqHeaders(end bool, md *corev3.Metadata) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{MetadataContext: md, Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		EndOfStream: end, Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":path", RawValue: []byte("/v1/chat/completions")}, {Key: "x-request-id", RawValue: []byte("r-1")}}}}}}
}

func reqBody(b []byte, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: b, EndOfStream: end}}}
}

func reqTrailers() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
}

// script describes answers in one line each, for comparison.
func script(rs []*extprocv3.ProcessingResponse) string {
	var b strings.Builder
	for _, r := range rs {
		md := r.GetDynamicMetadata().GetFields()[envoy.LBNamespace].GetStructValue().GetFields()[envoy.DestinationKey].GetStringValue()
		switch x := r.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_RequestHeaders:
			b.WriteString("headers" + common(x.RequestHeaders.GetResponse(), md) + "\n")
		case *extprocv3.ProcessingResponse_RequestBody:
			b.WriteString("body" + common(x.RequestBody.GetResponse(), md) + "\n")
		case *extprocv3.ProcessingResponse_RequestTrailers:
			b.WriteString("trailers" + common(nil, md) + "\n")
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			fmt.Fprintf(&b, "immediate %d %s\n", x.ImmediateResponse.GetStatus().GetCode(), x.ImmediateResponse.GetDetails())
		case *extprocv3.ProcessingResponse_ResponseHeaders:
			b.WriteString("response headers" + common(x.ResponseHeaders.GetResponse(), md) + "\n")
		case *extprocv3.ProcessingResponse_ResponseBody:
			b.WriteString("response body" + common(x.ResponseBody.GetResponse(), md) + "\n")
		case *extprocv3.ProcessingResponse_ResponseTrailers:
			b.WriteString("response trailers\n")
		}
	}
	return b.String()
}

// common describes what an answer does to its phase; "" lets it pass. The header and the metadata must name the same.
func common(c *extprocv3.CommonResponse, metadata string) (what string) {
	if s := c.GetBodyMutation().GetStreamedResponse(); s != nil {
		what += fmt.Sprintf(" %d end %v", len(s.GetBody()), s.GetEndOfStream())
	} else if c.GetBodyMutation() != nil {
		what += " changed"
	}
	for _, h := range c.GetHeaderMutation().GetSetHeaders() {
		what += fmt.Sprintf(" %s=%s", strings.TrimPrefix(h.GetHeader().GetKey(), "x-gateway-"), h.GetHeader().GetRawValue())
	}
	if metadata != "" {
		what += " metadata=" + metadata
	}
	if c.GetClearRouteCache() {
		what += " clear"
	}
	return what
}

const (
	pick1 = " destination-endpoint=10.0.0.1:1 metadata=10.0.0.1:1 clear\n" // as common describes it
	pick2 = " destination-endpoint=10.0.0.2:1 metadata=10.0.0.2:1 clear\n"
)

// mode is a gateway's first message with what it says of its bodies, both ways.
func mode(m procv3.ProcessingMode_BodySendMode, first *extprocv3.ProcessingRequest) *extprocv3.ProcessingRequest {
	first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: m, ResponseBodyMode: m}
	return first
}

func respHeaders(fields ...string) *extprocv3.ProcessingRequest {
	m := &corev3.HeaderMap{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: m}}}
}

func respBody(b []byte, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: b, EndOfStream: end}}}
}

func respTrailers() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
}

// TestEveryPhaseIsAnsweredOnce: in full duplex an unanswered phase hangs the request, and a doubled one corrupts it.
func TestEveryPhaseIsAnsweredOnce(t *testing.T) {
	const (
		named   = "headers" + pick1
		duplex  = procv3.ProcessingMode_FULL_DUPLEX_STREAMED
		whole   = procv3.ProcessingMode_BUFFERED
		part    = procv3.ProcessingMode_BUFFERED_PARTIAL
		pieces  = procv3.ProcessingMode_STREAMED
		none    = procv3.ProcessingMode_NONE
		unknown = procv3.ProcessingMode_BodySendMode(99)
	)
	big := bytes.Repeat([]byte("x"), 150_000)
	type msgs []*extprocv3.ProcessingRequest
	for name, c := range map[string]struct {
		msgs msgs
		want string
	}{
		"headers alone":           {msgs{reqHeaders(true, nil)}, named},
		"one chunk":               {msgs{reqHeaders(false, nil), reqBody([]byte("{}"), true)}, named + "body 2 end true\n"},
		"said to be full duplex":  {msgs{mode(duplex, reqHeaders(false, nil)), reqBody([]byte("{}"), true)}, named + "body 2 end true\n"},
		"chunks and an empty end": {msgs{reqHeaders(false, nil), reqBody([]byte("{"), false), reqBody([]byte("}"), false), reqBody(nil, true)}, named + "body 2 end true\n"},
		"an empty body":           {msgs{reqHeaders(false, nil), reqBody(nil, true)}, named + "body 0 end true\n"},
		"a second end of stream":  {msgs{reqHeaders(false, nil), reqBody([]byte("{}"), true), reqBody(nil, true)}, named + "body 2 end true\n"},
		"trailers":                {msgs{reqHeaders(false, nil), reqBody([]byte("{}"), false), reqTrailers()}, named + "body 2 end false\ntrailers\n"},
		"trailers, a large body":  {msgs{reqHeaders(false, nil), reqBody(big, false), reqTrailers()}, named + "body 62000 end false\nbody 62000 end false\nbody 26000 end false\ntrailers\n"},
		"trailers without body":   {msgs{reqHeaders(false, nil), reqTrailers()}, named + "trailers\n"},
		"trailers after the end":  {msgs{reqHeaders(false, nil), reqBody(nil, true), reqTrailers()}, named + "body 0 end true\ntrailers\n"},
		"a large body":            {msgs{reqHeaders(false, nil), reqBody(big, true)}, named + "body 62000 end false\nbody 62000 end false\nbody 26000 end true\n"},
		"at the limit":            {msgs{reqHeaders(false, nil), reqBody(make([]byte, 62_000), false), reqBody(nil, true)}, named + "body 62000 end true\n"},
		"over the limit":          {msgs{reqHeaders(false, nil), reqBody(make([]byte, 1<<20), false), reqBody([]byte("x"), false), reqBody(nil, true), reqTrailers()}, "immediate 413 picker_body_too_large\n"},
		"nothing but a window":    {msgs{{}}, ""},

		"a response":             {msgs{reqHeaders(true, nil), respHeaders(), respBody([]byte("abc"), false), respBody(nil, true)}, named + "response headers\nresponse body 3 end false\nresponse body 0 end true\n"},
		"a large response":       {msgs{reqHeaders(true, nil), respHeaders(), respBody(big, true)}, named + "response headers\nresponse body 62000 end false\nresponse body 62000 end false\nresponse body 26000 end true\n"},
		"a response's trailers":  {msgs{reqHeaders(true, nil), respHeaders(), respBody([]byte("abc"), false), respTrailers()}, named + "response headers\nresponse body 3 end false\nresponse trailers\n"},
		"a reply of the gateway": {msgs{respHeaders(), respBody([]byte("abc"), true)}, "response headers\nresponse body 3 end true\n"},

		"buffered":                  {msgs{mode(whole, reqHeaders(false, nil)), reqBody([]byte("{}"), true), respHeaders(), respBody(big, true)}, "headers\nbody" + pick1 + "response headers\nresponse body\n"},
		"buffered, headers alone":   {msgs{mode(whole, reqHeaders(true, nil))}, named},
		"buffered, trailers":        {msgs{mode(whole, reqHeaders(false, nil)), reqBody(big, false), reqTrailers()}, "headers\nbody" + pick1 + "trailers\n"},
		"buffered, trailers alone":  {msgs{mode(whole, reqHeaders(false, nil)), reqTrailers()}, "headers\ntrailers metadata=10.0.0.1:1\n"},
		"buffered, over the limit":  {msgs{mode(whole, reqHeaders(false, nil)), reqBody(make([]byte, 1<<20+1), true)}, "headers\nimmediate 413 picker_body_too_large\n"},
		"buffered in part":          {msgs{mode(part, reqHeaders(false, nil)), reqBody([]byte("{"), false)}, "headers\nbody" + pick1},
		"streamed":                  {msgs{mode(pieces, reqHeaders(false, nil)), reqBody([]byte("{"), false), reqBody([]byte("}"), true), respHeaders(), respBody(nil, true)}, named + "body\nbody\nresponse headers\nresponse body\n"},
		"streamed, over the limit":  {msgs{mode(pieces, reqHeaders(false, nil)), reqBody(make([]byte, 1<<20+1), true)}, named + "body\n"},
		"streamed, trailers":        {msgs{mode(pieces, reqHeaders(false, nil)), reqBody([]byte("{"), false), reqTrailers()}, named + "body\ntrailers\n"},
		"no body":                   {msgs{mode(none, reqHeaders(false, nil)), respHeaders()}, named + "response headers\n"},
		"a mode that came up later": {msgs{mode(unknown, reqHeaders(false, nil))}, "immediate 503 picker_unavailable\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := pool(t, "10.0.0.1:1")
			st := stream{server: server(p), traced: t.Context()}
			var out []*extprocv3.ProcessingResponse
			for _, m := range c.msgs {
				out = append(out, st.take(m)...)
				st.sent()
			}
			if got := script(out); got != c.want {
				t.Errorf("answers\n%swant\n%s", got, c.want)
			}
			st.end()
			if n := load(p); n != 0 {
				t.Errorf("%d bookings are left", n)
			}
			if n := st.server.held.Load(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})
	}
}

func TestTrailersAreRefusedWhereEnvoyWouldDoubleTheBody(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	st := stream{server: server(p), traced: t.Context()}
	st.server.RefuseTrailers = true
	defer st.end()
	st.take(reqHeaders(false, nil))
	st.take(reqBody([]byte("{}"), false))
	if got := script(st.take(reqTrailers())); got != "immediate 400 picker_invalid_body\n" {
		t.Errorf("answers %s", got)
	}
	if n := load(p); n != 0 {
		t.Errorf("%d bookings", n)
	}
}

func TestSubset(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1", "[::1]:1")
	list := func(vs ...string) *structpb.Value {
		l := &structpb.ListValue{}
		for _, v := range vs {
			l.Values = append(l.Values, structpb.NewStringValue(v))
		}
		return structpb.NewListValue(l)
	}
	for name, c := range map[string]struct {
		hint *structpb.Value
		want string
	}{
		"a list":                {list("10.0.0.2:1"), "headers" + pick2},
		"a string":              {structpb.NewStringValue("10.0.0.9:1, 10.0.0.2:1"), "headers" + pick2},
		"without port":          {list("10.0.0.1"), "headers" + pick1},
		"IPv6":                  {list("[::1]:1"), "headers destination-endpoint=[::1]:1 metadata=[::1]:1 clear\n"},
		"another port":          {list("10.0.0.1:2"), "immediate 503 picker_overloaded\n"},
		"empty list":            {list(), "immediate 503 picker_overloaded\n"},
		"empty string":          {structpb.NewStringValue(""), "immediate 503 picker_overloaded\n"},
		"neither list nor text": {structpb.NewNumberValue(1), "immediate 503 picker_overloaded\n"},
	} {
		t.Run(name, func(t *testing.T) {
			md := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.SubsetNamespace: {Fields: map[string]*structpb.Value{subsetKey: c.hint}}}}
			st := stream{server: server(p), traced: t.Context()}
			defer st.end()
			if got := script(st.take(reqHeaders(true, md))); got != c.want {
				t.Errorf("answers %swant %s", got, c.want)
			}
		})
	}
}

// TestPromptIsTheSameInEveryEncoding, and what is none of ours is searched by as it is.
func TestPromptIsTheSameInEveryEncoding(t *testing.T) {
	_, plain := chat(t, "hello")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain)
	_ = w.Close()
	p, _ := pool(t)
	text := func(encoding string, body []byte) string {
		st := stream{server: &Server{Picker: p, BodyLimit: 1 << 10}, headers: map[string]string{":path": "/v1/chat/completions", "content-encoding": encoding}, body: body}
		return string(st.ask(new(rendered)).Prompt)
	}
	want := text("", plain)
	if want == string(plain) || text("gzip", zipped.Bytes()) != want {
		t.Errorf("plain is %q, gzip %q", want, text("gzip", zipped.Bytes()))
	}
	for encoding, body := range map[string]string{"gzip": "none", "br": zipped.String(), "": "none"} {
		if got := text(encoding, []byte(body)); got != body {
			t.Errorf("%q in %q is %q", body, encoding, got)
		}
	}
}

// servedBy adds who served, as the gateway reports it with the first message about an answer.
func servedBy(addr string, m *extprocv3.ProcessingRequest) *extprocv3.ProcessingRequest {
	m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.LBNamespace: {Fields: map[string]*structpb.Value{
		envoy.ServedKey: structpb.NewStringValue(addr)}}}}
	return m
}

// opened is a stream to a picker over these workers.
func opened(t *testing.T, p *Picker) *stream {
	st := &stream{server: server(p), traced: t.Context()}
	t.Cleanup(st.end)
	return st
}

// say gives messages in and the answers out.
func say(st *stream, messages ...*extprocv3.ProcessingRequest) (out []*extprocv3.ProcessingResponse) {
	for _, m := range messages {
		out = append(out, st.take(m)...)
	}
	return out
}

// returned is the request's body as it is given back.
func returned(rs []*extprocv3.ProcessingResponse) (body []byte, ends int) {
	for _, r := range rs {
		s := r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		body = append(body, s.GetBody()...)
		if s.GetEndOfStream() {
			ends++
		}
	}
	return body, ends
}
