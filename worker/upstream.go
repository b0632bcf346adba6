package worker

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// passedHeaders are all that an engine gets of a client's headers. A list of what to leave out would miss the headers by
// which an engine is steered.
var passedHeaders = []string{
	"Content-Type", "Accept", "User-Agent", "Traceparent", "Tracestate", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
}

// ask sends the request to the engine: same path, and the body as it was prepared, with more edits.
func (a *attempt) ask(r *http.Request, more ...edit) (*http.Response, error) {
	a.epoch = a.w.states.epoch()
	return a.w.transport.RoundTrip(a.outgoing(r, a.body.edited(append(more, a.edits...)...)))
}

func (a *attempt) outgoing(r *http.Request, body content) *http.Request {
	out := &http.Request{
		Method: http.MethodPost, URL: under(a.w.base, r.URL.Path), Host: a.w.base.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, 8),
		ContentLength: body.size, Body: body.open(),
		GetBody: func() (io.ReadCloser, error) { return body.open(), nil },
	}
	for _, name := range passedHeaders {
		if v := r.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
	if len(out.Header["User-Agent"]) == 0 {
		out.Header["User-Agent"] = []string{"spokegate"}
	}
	out.Header["X-Request-Id"] = []string{a.trusted.Admission}
	if rank, ok := rankIn(r.Header, a.w.address, a.w.cfg.Ranks); ok {
		out.Header[engineRankHeader] = []string{rank}
	}
	a.trace(out.Header)
	return out.WithContext(a.ctx)
}

// trace makes what the request leads to part of our span.
func (a *attempt) trace(h http.Header) {
	if a.span != nil {
		propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), a.span), propagation.HeaderCarrier(h))
	}
}

// under is path below base. path begins with a slash.
func under(base *url.URL, path string) *url.URL {
	u := *base
	u.Path, u.RawPath = strings.TrimSuffix(base.Path, "/")+path, ""
	return &u
}

// droppedHeaders of an engine's answer: hop by hop, or spoken by the door and the shim alone.
var droppedHeaders = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Content-Encoding": true, "Date": true,
	"Server": true, "X-Request-Id": true, "Set-Cookie": true, "Alt-Svc": true, "Www-Authenticate": true,
}

var droppedPrefixes = []string{"X-Spokegate-", "X-Envoy-", "X-Gateway-"}

func copyHeaders(to, from http.Header) {
	for name, values := range from {
		if !droppedHeaders[name] && !hasAnyPrefix(name, droppedPrefixes) {
			to[name] = values
		}
	}
	for _, list := range from["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// decoded undoes an encoding that nobody asked for: usage must be read, and the client did not ask for it either.
func decoded(resp *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return &gunzip{from: resp.Body}, nil
	default:
		return nil, fmt.Errorf("it is encoded as %.32q, which nobody asked for", encoding)
	}
}

// gunzip reads the header with the first Read, when the body has begun.
type gunzip struct {
	from io.Reader
	zip  *gzip.Reader
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.zip == nil {
		zip, err := gzip.NewReader(g.from)
		if err != nil {
			return 0, unexpected(err)
		}
		g.zip = zip
	}
	return g.zip.Read(p)
}

// unexpected makes an early end an error.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// neverArrived says that no byte of a request can have reached the engine.
func neverArrived(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
