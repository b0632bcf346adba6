package epp

import (
	"context"
	"net/http"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
)

// stream is one request in the protocol: messages in, answers out, no I/O.
//
// In full duplex nothing goes on until we answer, and nothing times out: every phase must be answered exactly once.
// Headers are answered only when the body is whole, since the pick depends on it; then the body, and then trailers.
type stream struct {
	server  *Server
	traced  context.Context   // holds the span in which the gateway calls, if there is one
	headers map[string]string // of the request, the few that matter
	subset  []string
	body    []byte
	picked  bool
	booking flight.Booking // held here, because no flight took it
}

// take answers one message.
func (st *stream) take(req *extprocv3.ProcessingRequest) []*extprocv3.ProcessingResponse {
	switch r := req.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return st.requestHeaders(r.RequestHeaders, req.GetMetadataContext())
	case *extprocv3.ProcessingRequest_RequestBody:
		return st.requestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if st.server.RefuseTrailers {
			return immediate(openai.InvalidBody("", "request trailers are not supported"), st.op())
		}
		return st.pick(endTrailers)
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		st.served(req.GetMetadataContext())
		return []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &extprocv3.HeadersResponse{}}}}
	case *extprocv3.ProcessingRequest_ResponseBody:
		if st.booking != nil && len(r.ResponseBody.GetBody()) > 0 {
			st.booking.FirstByte()
		}
		return []*extprocv3.ProcessingResponse{responseChunk(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return []*extprocv3.ProcessingResponse{{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{}}}}
	}
	return nil
}

func (st *stream) requestHeaders(h *extprocv3.HttpHeaders, md *corev3.Metadata) []*extprocv3.ProcessingResponse {
	st.headers = map[string]string{}
	for _, v := range h.GetHeaders().GetHeaders() {
		switch k := v.GetKey(); k {
		case ":path", ":method", "content-encoding", envoy.RequestIDHeader, envoy.EndpointHeader:
			st.headers[k] = envoy.HeaderValue(v)
		}
	}
	st.subset = subset(md)
	if h.GetEndOfStream() {
		return st.pick(endHeaders)
	}
	return nil
}

func (st *stream) requestBody(b *extprocv3.HttpBody) []*extprocv3.ProcessingResponse {
	if st.picked {
		return nil // a second end of stream: the body was answered whole
	}
	if int64(len(st.body)+len(b.GetBody())) > st.server.BodyLimit {
		return immediate(openai.BodyTooLarge(st.server.BodyLimit), st.op())
	}
	st.body = append(st.body, b.GetBody()...)
	if b.GetEndOfStream() {
		return st.pick(endBody)
	}
	return nil
}

func (st *stream) op() openai.Op {
	path, _, _ := strings.Cut(st.headers[":path"], "?")
	op, _, _ := openai.Route(http.MethodPost, path)
	return op
}

// ending is the phase that a request ended with, and so which phases wait for an answer.
type ending uint8

const (
	endHeaders ending = iota
	endBody
	endTrailers
)

// pick answers every phase of the request at once.
func (st *stream) pick(end ending) []*extprocv3.ProcessingResponse {
	if st.picked {
		return nil
	}
	b := buffers.Get().(*rendered)
	defer buffers.Put(b)
	q := st.ask(b)
	q.Subset = st.subset
	choice, err := st.server.Picker.pick(st.traced, st.server.Now(), st.endpoint(), q)
	if err != nil {
		return immediate(openai.Overloaded(err.Error(), time.Second), st.op())
	}
	st.picked = true
	if f := st.server.Flights; f == nil || !f.Book(st.headers[envoy.RequestIDHeader], choice.Booking) {
		st.booking = choice.Booking
	}
	out := []*extprocv3.ProcessingResponse{named(choice.Addrs)}
	if end != endHeaders {
		out = append(out, requestChunks(st.body, end == endBody)...)
	}
	if end == endTrailers {
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{}}})
	}
	st.body = nil
	return out
}

func (st *stream) endpoint() string {
	if st.server.Endpoint != "" {
		return st.server.Endpoint
	}
	return envoy.EndpointOf(st.headers[envoy.EndpointHeader])
}

// ask is what the prefix is searched by: the rendered prompt, or the body as it is where it is none of ours.
func (st *stream) ask(b *rendered) ask {
	body, err := openai.DecodeBody(st.headers["content-encoding"], st.body, st.server.BodyLimit)
	if err != nil {
		return ask{Ask: router.Ask{Prompt: st.body}}
	}
	req, err := openai.Scan(st.op(), body)
	if err != nil {
		return ask{Ask: router.Ask{Prompt: st.body}}
	}
	return st.server.Picker.ask(st.traced, b, st.endpoint(), req, body)
}

// served moves the booking to the worker that took the request, where a retry changed it.
func (st *stream) served(md *corev3.Metadata) {
	if st.booking == nil {
		return
	}
	if addr := md.GetFilterMetadata()[envoy.LBNamespace].GetFields()[envoy.ServedKey].GetStringValue(); addr != "" {
		st.booking.Serving(addr)
	}
}

func (st *stream) end() {
	if st.booking != nil {
		st.booking.Release()
		st.booking = nil
	}
}
