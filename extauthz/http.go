package extauthz

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// mostHeaders bounds the headers of one check, in bytes: Envoy takes less than half of it from a client.
const mostHeaders = 128 << 10

// HTTP is the server that the door's own Envoy asks about requests with large bodies, which it has asked about on headers alone before.
// Whoever reaches it is believed. It closes no connection that is idle, lest Envoy ask on it at that moment.
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: http.HandlerFunc(s.answerCheck), MaxHeaderBytes: mostHeaders, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelError)}
}

// answerCheck answers one check. What cannot be read, and what nobody would hear, has no answer: the connection is closed, and Envoy
// refuses the request.
func (s *Server) answerCheck(w http.ResponseWriter, r *http.Request) {
	q, ok := s.readCheck(r)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	if n := r.ContentLength; n > 0 {
		body := wire.Buffers.Get(int(n))
		defer wire.Buffers.Put(body)
		if _, err := io.ReadFull(r.Body, *body); err != nil { // Envoy has left
			panic(http.ErrAbortHandler)
		}
		q.body = *body
	}
	ctx := r.Context()
	if s.Tracer != nil {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	a, err := s.decide(ctx, &q, false)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := a.write(w); err != nil {
		s.abandon(&a)
		panic(http.ErrAbortHandler)
	}
}

// readCheck reads all of a check but its body. False: no Envoy of this door's wrote it.
func (s *Server) readCheck(r *http.Request) (question, bool) {
	target, ok := strings.CutPrefix(r.RequestURI, envoy.CheckPrefix)
	if !ok || r.ContentLength < 0 || r.ContentLength > s.BodyLimit {
		s.Log.Error("not a check of this door's Envoy", "length", r.ContentLength)
		return question{}, false
	}
	q := question{method: r.Method, target: target, host: r.Host, contentLength: r.ContentLength}
	for i := range read {
		if values := r.Header[canonical[i]]; len(values) > 0 {
			*read[i].to(&q) = strings.Join(values, ",")
		}
	}
	return q, true
}

// canonical are the names of read as net/http has them.
var canonical = func() (names []string) {
	for _, h := range read {
		names = append(names, http.CanonicalHeaderKey(h.name))
	}
	return names
}()

// write puts an answer into a response: 200 and no body for what passes, anything else for what does not. An error: Envoy is not
// there any more.
func (a answer) write(w http.ResponseWriter) error {
	h := w.Header()
	h["Date"] = nil // Envoy has its own
	status, body := http.StatusOK, []byte(nil)
	var headers []openai.Header
	if a.passes {
		if headers = a.upstream(); headers != nil {
			headers = a.told(headers)
		}
		if len(a.workers) > 0 {
			headers = append(headers, openai.Header{Name: envoy.DestinationKey, Value: a.destination()})
		}
	} else {
		status, body, headers = a.denial()
		status = envoy.DeniedAs(status)
	}
	values := make([]string, len(headers))
	for i := range headers {
		name := headers[i].Name
		if name == "content-type" {
			name = "Content-Type" // or net/http would guess one
		}
		values[i] = headers[i].Value
		h[name] = values[i : i+1 : i+1]
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil && err != http.ErrBodyNotAllowed {
		return err
	}
	return http.NewResponseController(w).Flush()
}
