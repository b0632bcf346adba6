package epp

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
)

// Flights takes a booking along with the flight of an admission, so that it ends when the flight does.
type Flights interface {
	// Book answers false where there is no such flight: the booking then ends with the stream.
	Book(admission string, b flight.Booking) bool
}

// Server speaks the Endpoint Picker Protocol. It keeps a request's state by its stream and by nothing that a client sends.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	// Picker answers; required.
	Picker *Picker
	// Endpoint that this picker serves; empty: the endpoint that the door's admission wrote into the headers.
	Endpoint string
	// Flights of our own door; nil behind other gateways. Its Envoy is told, too, how many workers it may try.
	Flights Flights
	// RefuseTrailers answers requests with trailers by 400. An Envoy whose route retries sends the body of such a request
	// twice after a full-duplex filter (envoy issue 45470): better a clear no than a doubled prompt.
	RefuseTrailers bool
	// BodyLimit in bytes: a longer request is refused with 413, since nothing else bounds what a stream holds.
	BodyLimit int64
	// HeldLimit bounds, in bytes, what all streams together hold of requests that are not whole yet, or not given back: what goes
	// beyond is refused with 503. So many slow uploads cannot exhaust the process. 0: no bound.
	HeldLimit int64
	// Sheddable are the objectives (x-gateway-inference-objective) of negative priority: requests that name one are refused first,
	// with 429, when all workers are busy.
	Sheddable []string
	Now       func() time.Time

	held    atomic.Int64
	unfolds sync.Once
	decoder *openai.Decoder // see unfold
}

// Process serves one request. A booking that no flight took ends with it.
func (s *Server) Process(rpc extprocv3.ExternalProcessor_ProcessServer) error {
	st := stream{server: s, traced: envoy.Traced(rpc.Context())}
	defer st.end()
	for {
		req, err := rpc.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			return err
		}
		if req.GetObservabilityMode() {
			return nil // who only lets us watch follows no pick, so none is made; this says that no more need be sent
		}
		for _, resp := range st.take(req) {
			if err := rpc.Send(resp); err != nil {
				return err
			}
		}
		st.sent()
	}
}

// unfold takes the content-encoding off a body: what a small one unfolds to is no part of held, so few large ones are in memory
// at one time. done must be called when the body is used no more.
func (s *Server) unfold(ctx context.Context, encoding string, body []byte) (plain []byte, done func(), err *openai.Error) {
	s.unfolds.Do(func() { s.decoder = openai.NewDecoder(s.BodyLimit) })
	return s.decoder.Decode(ctx, encoding, body)
}

// hold asks for room for more bytes of bodies.
func (s *Server) hold(n int64) bool {
	now := s.held.Add(n)
	if s.HeldLimit > 0 && now > s.HeldLimit {
		s.held.Add(-n)
		return false
	}
	s.Picker.metrics.reading.Add(float64(n))
	return true
}

func (s *Server) letGo(n int64) {
	s.held.Add(-n)
	s.Picker.metrics.reading.Sub(float64(n))
}
