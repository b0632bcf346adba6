package epp

import (
	"context"
	"errors"
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
// In full duplex, which the protocol demands, nothing goes on until we answer, and nothing times out: every phase must be
// answered exactly once. Headers are answered only when the body is whole, since the pick depends on it; then the body, and
// then trailers. The other modes of ext_proc are served as well as they let us: see manner.
type stream struct {
	server  *Server
	traced  context.Context // holds the span in which the gateway calls, if there is one
	manner  manner
	headers map[string]string // of the request, the few that matter
	subset  []string
	body    []byte
	kept    int64 // of the body, in Server.held
	picked  bool
	refused bool
	booking flight.Booking // held here, because no flight took it
	meter   *openai.Meter  // of the answer; nil: it is not of an engine, or cannot be read
	begun   bool           // the answer's body
}

// take answers one message.
func (st *stream) take(req *extprocv3.ProcessingRequest) []*extprocv3.ProcessingResponse {
	if st.refused {
		return nil // the gateway sent this before it heard
	}
	if c := req.GetProtocolConfig(); c != nil { // with the first message
		st.manner = mannerOf(c)
	}
	switch r := req.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return st.requestHeaders(r.RequestHeaders, req.GetMetadataContext())
	case *extprocv3.ProcessingRequest_RequestBody:
		return st.requestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return st.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		st.served(req.GetMetadataContext())
		st.responseHeaders(r.ResponseHeaders)
		return one(passResponseHeaders())
	case *extprocv3.ProcessingRequest_ResponseBody:
		st.responseBody(r.ResponseBody)
		if st.manner.responses == wholly {
			return responseChunks(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())
		}
		return one(passResponseBody())
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		st.answered(true)
		return one(passResponseTrailers())
	}
	return nil
}

// keptHeaders are those of a request that matter here.
var keptHeaders = map[string]bool{
	":path": true, "content-encoding": true, envoy.RequestIDHeader: true, envoy.EndpointHeader: true,
	sessionHeader: true, objectiveHeader: true, objectiveHeaderAlias: true,
	rankHeader: true, prefillerHeader: true, sidecarHeader: true,
}

func (st *stream) requestHeaders(h *extprocv3.HttpHeaders, md *corev3.Metadata) []*extprocv3.ProcessingResponse {
	if st.headers != nil || st.picked {
		return nil // a request has headers once, and first
	}
	st.headers = map[string]string{}
	for _, v := range h.GetHeaders().GetHeaders() {
		if keptHeaders[v.GetKey()] {
			st.headers[v.GetKey()] = envoy.HeaderValue(v)
		}
	}
	st.subset = subset(md)
	switch {
	case st.manner.requests == strange || st.manner.responses == strange:
		return st.turnAway("mode", openai.Unavailable("the gateway hands over bodies in a way that the picker does not know", 0))
	case h.GetEndOfStream() || st.manner.requests == unseen:
		return st.pick(func(c chosen) []*extprocv3.ProcessingResponse { return one(c.onHeaders()) })
	case st.manner.requests == atOnce:
		return one(st.unforged())
	}
	return nil
}

func (st *stream) requestBody(b *extprocv3.HttpBody) []*extprocv3.ProcessingResponse {
	switch {
	case st.picked && st.manner.requests == wholly:
		return nil // a second end of stream: the body was answered whole
	case st.picked:
		return one(passRequestBody())
	case int64(len(st.body)+len(b.GetBody())) > st.server.BodyLimit:
		return st.turnAway("too_large", openai.BodyTooLarge(st.server.BodyLimit))
	case !st.server.hold(int64(len(b.GetBody()))):
		return st.turnAway("held", openai.Overloaded("too many requests are being read", time.Second))
	}
	st.kept += int64(len(b.GetBody()))
	if st.manner.requests == atOnce {
		st.body = b.GetBody()
		return st.pick(func(c chosen) []*extprocv3.ProcessingResponse { return one(c.onBody()) })
	}
	st.body = append(st.body, b.GetBody()...)
	if b.GetEndOfStream() {
		return st.pick(func(c chosen) []*extprocv3.ProcessingResponse {
			return append(one(c.onHeaders()), requestChunks(st.body, true)...)
		})
	}
	return nil
}

func (st *stream) requestTrailers() []*extprocv3.ProcessingResponse {
	switch {
	case st.picked:
		return one(passRequestTrailers())
	case st.server.RefuseTrailers:
		return st.turnAway("trailers", openai.InvalidBody("", "request trailers are not supported"))
	}
	return st.pick(func(c chosen) []*extprocv3.ProcessingResponse {
		if st.manner.requests == atOnce { // there was no body to put it on
			return one(c.onTrailers())
		}
		return append(append(one(c.onHeaders()), requestChunks(st.body, false)...), passRequestTrailers())
	})
}

func (st *stream) op() openai.Op {
	path, _, _ := strings.Cut(st.headers[":path"], "?")
	op, _, _ := openai.Route(http.MethodPost, path)
	return op
}

// turnAway refuses what is not picked for.
func (st *stream) turnAway(reason string, e *openai.Error) []*extprocv3.ProcessingResponse {
	st.server.Picker.metrics.refused.WithLabelValues(reason).Inc()
	return st.refuse(e)
}

// refuse ends the request here.
func (st *stream) refuse(e *openai.Error) []*extprocv3.ProcessingResponse {
	st.refused = true
	return one(immediate(e, st.op()))
}

// pick chooses, and has the phases of the request that wait answered with it.
func (st *stream) pick(with func(chosen) []*extprocv3.ProcessingResponse) []*extprocv3.ProcessingResponse {
	b := buffers.Get().(*rendered)
	defer buffers.Put(b)
	q := st.ask(b)
	st.hint(&q.Ask)
	choice, err := st.server.Picker.pick(st.traced, st.server.Now(), st.endpoint(), q)
	if err != nil {
		return st.refuse(refusal(err))
	}
	st.picked = true
	f := st.server.Flights
	if f == nil || !f.Book(st.headers[envoy.RequestIDHeader], choice.Booking) {
		st.booking = choice.Booking
	}
	told := st.told(&choice)
	return with(chosen{addrs: choice.Addrs, retries: f != nil, told: told, forged: st.forged(told)})
}

// refusal is 429 for what is shed because all are busy, 503 for all else.
func refusal(err error) *openai.Error {
	var busy *router.BusyError
	switch {
	case !errors.As(err, &busy):
		return openai.Overloaded(err.Error(), time.Second)
	case busy.Sheddable:
		return openai.Shed(busy.RetryAfter)
	}
	return openai.Overloaded("All workers are busy.", busy.RetryAfter)
}

func (st *stream) endpoint() string {
	if st.server.Endpoint != "" {
		return st.server.Endpoint
	}
	return envoy.EndpointOf(st.headers[envoy.EndpointHeader])
}

// ask is what the prefix is searched by: the rendered prompt, or the body as it is where it is none of ours.
func (st *stream) ask(b *rendered) ask {
	body, done, err := st.server.unfold(st.traced, st.headers["content-encoding"], st.body)
	defer done()
	if err != nil {
		return ask{Ask: router.Ask{Prompt: st.body}}
	}
	req, err := openai.Scan(st.op(), body)
	if err != nil {
		return ask{Ask: router.Ask{Prompt: st.body}}
	}
	q := st.server.Picker.ask(st.traced, b, st.endpoint(), req, body)
	q.Split = st.splits(req, body)
	return q
}

// sent drops what was held for answers that are out.
func (st *stream) sent() {
	if st.picked || st.refused {
		st.drop()
	}
}

func (st *stream) drop() {
	st.server.letGo(st.kept)
	st.body, st.kept = nil, 0
}

func (st *stream) end() {
	st.answered(false)
	st.drop()
}
