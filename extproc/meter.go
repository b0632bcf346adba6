// Package extproc watches what became of an admitted request. Meter is Envoy's ext_proc service: it counts what a
// response used. Log is the sink of Envoy's gRPC access log: it tells how the request ended. Both hand what they saw to
// the flight, which ends by whichever comes first and is journaled with both.
//
// It only receives and counts: no disk, and no lock that another holds. It never changes or delays a response.
package extproc

import (
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
)

// Meter counts responses. One stream is one request.
type Meter struct {
	extprocv3.UnimplementedExternalProcessorServer
	flights *flight.Table
	now     func() time.Time
	log     *slog.Logger
	streams prometheus.Gauge
}

// NewMeter feeds the flights of t.
func NewMeter(t *flight.Table, now func() time.Time, r prometheus.Registerer, log *slog.Logger) *Meter {
	return &Meter{flights: t, now: now, log: log, streams: promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "spokegate_meter_streams",
		Help: "Responses that are being metered now.",
	})}
}

// Register adds both services to a gRPC server.
func Register(g *grpc.Server, m *Meter, l *Log) {
	extprocv3.RegisterExternalProcessorServer(g, m)
	alsv3.RegisterAccessLogServiceServer(g, l)
}

// Process receives until the stream ends, however it ends: Envoy cancels streams in ordinary life, so an end says
// nothing of the outcome.
func (m *Meter) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	m.streams.Inc()
	defer m.streams.Dec()
	w := watch{flights: m.flights, now: m.now}
	defer w.end()
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			m.log.Debug("metering stream broke off", "admission", w.admission, "error", err)
			return err
		}
		resp := w.take(req)
		if req.GetObservabilityMode() { // Envoy goes on by itself and reads no answer
			if w.facts.SawEnd {
				return nil // lets go of the stream, which Envoy would hold open for its deferred close
			}
			continue
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// watch is what one stream has seen.
type watch struct {
	flights *flight.Table
	now     func() time.Time

	admission string
	op        openai.Op
	served    string
	meter     *openai.Meter
	facts     flight.Metered
	begun     bool // the first byte of the body was seen
}

// take notes one message and gives the answer that lets it pass where Envoy waits for one.
func (w *watch) take(req *extprocv3.ProcessingRequest) *extprocv3.ProcessingResponse {
	switch r := req.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		w.requestHeaders(r.RequestHeaders)
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		w.responseHeaders(r.ResponseHeaders, req.GetMetadataContext())
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseBody:
		w.responseBody(r.ResponseBody)
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
	case *extprocv3.ProcessingRequest_RequestBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		w.facts.SawEnd = true
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
	}
	return &extprocv3.ProcessingResponse{}
}

// requestHeaders learns whose response this will be. Only what admission let through names an endpoint; a denial
// arrives without request headers at all.
func (w *watch) requestHeaders(h *extprocv3.HttpHeaders) {
	var path, endpoint, id string
	for _, v := range h.GetHeaders().GetHeaders() {
		switch v.GetKey() {
		case ":path":
			path = envoy.HeaderValue(v)
		case envoy.EndpointHeader:
			endpoint = envoy.HeaderValue(v)
		case envoy.RequestIDHeader:
			id = envoy.HeaderValue(v)
		}
	}
	if endpoint == "" {
		return
	}
	w.admission = id
	path, _, _ = strings.Cut(path, "?")
	w.op, _, _ = openai.Route("POST", path)
}

func (w *watch) responseHeaders(h *extprocv3.HttpHeaders, md *corev3.Metadata) {
	if w.admission == "" {
		return
	}
	w.served = md.GetFilterMetadata()[envoy.LBNamespace].GetFields()[envoy.ServedKey].GetStringValue()
	var sse bool
	for _, v := range h.GetHeaders().GetHeaders() {
		switch v.GetKey() {
		case ":status":
			w.facts.Status, _ = strconv.Atoi(envoy.HeaderValue(v))
		case "content-type":
			sse = envoy.HeaderValue(v) == openai.EventStream
		case envoy.RefusedHeader:
			w.facts.Refused = true
		}
	}
	w.meter = openai.NewMeter(w.op, sse)
	if h.GetEndOfStream() {
		w.facts.SawEnd = true
	}
}

func (w *watch) responseBody(b *extprocv3.HttpBody) {
	if w.meter == nil {
		return
	}
	if len(b.GetBody()) > 0 && !w.begun {
		w.begun = true
		w.flights.FirstByte(w.admission, w.served, w.now())
	}
	_, _ = w.meter.Write(b.GetBody()) // never fails
	w.facts.ResponseBytes += int64(len(b.GetBody()))
	if b.GetEndOfStream() {
		w.facts.SawEnd = true
		w.end() // now, and not when Envoy lets go of the stream
	}
}

// end tells the flight what was seen. Telling it twice is harmless.
func (w *watch) end() {
	if w.admission == "" {
		return
	}
	if w.meter != nil {
		w.facts.Report = w.meter.Close()
	}
	w.facts.At = w.now()
	facts := w.facts
	w.flights.End(w.admission, flight.Facts{Metered: &facts})
	w.admission = ""
}
