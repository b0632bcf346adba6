// Package extproc watches what became of an admitted request. Log is the sink of Envoy's gRPC access log: it tells how the
// request ended, and what the worker's shim had noted of what passed. Meter is Envoy's ext_proc service: it counts what a
// response used that no shim notes. Both hand what they saw to the flight, which ends by whichever comes first and is
// journaled with both.
//
// It only receives and counts: no disk, and no lock that another holds. It never changes or delays a response.
package extproc

import (
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
)

// Meter counts responses. One stream is one request.
type Meter struct {
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

// Register adds both services to a gRPC server, which must have been made with wire.Option.
func Register(g *grpc.Server, m *Meter, l *Log) {
	register(g, extprocv3.ExternalProcessor_ServiceDesc, m.Process)
	register(g, alsv3.AccessLogService_ServiceDesc, l.Receive)
}

// register adds a service of one method, which reads its messages by itself.
func register(g *grpc.Server, desc grpc.ServiceDesc, serve func(grpc.ServerStream) error) {
	desc.HandlerType = (*any)(nil)
	only := desc.Streams[0]
	only.Handler = func(_ any, stream grpc.ServerStream) error { return serve(stream) }
	desc.Streams = []grpc.StreamDesc{only}
	g.RegisterService(&desc, struct{}{})
}

// Process receives until the stream ends, however it ends: Envoy cancels streams in ordinary life, so an end says
// nothing of the outcome.
func (m *Meter) Process(stream grpc.ServerStream) error {
	m.streams.Inc()
	defer m.streams.Dec()
	w := &watch{flights: m.flights, now: m.now}
	defer w.end()
	for {
		err := stream.RecvMsg(w)
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			m.log.Debug("metering stream broke off", "admission", w.admission, "error", err)
			return err
		}
		if w.observed { // Envoy goes on by itself and reads no answer
			if w.facts.SawEnd {
				return nil // lets go of the stream, which Envoy would hold open for its deferred close
			}
			continue
		}
		if err := stream.SendMsg(pass(w.about)); err != nil {
			return err
		}
	}
}

// pass is the answer that lets a message pass where Envoy waits for one.
func pass(about part) *extprocv3.ProcessingResponse {
	switch about {
	case requestHeaders:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
	case responseHeaders:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
	case requestBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
	case responseBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
	case requestTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
	case responseTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
	}
	return &extprocv3.ProcessingResponse{}
}

// watch is what one stream has seen. It receives each message of it.
type watch struct {
	flights *flight.Table
	now     func() time.Time

	about    part // of the last message
	observed bool // it was only observed

	admission string
	served    string
	facts     flight.Metered
	begun     bool // the first byte of the body was seen

	mu    sync.Mutex // for Report, which the flight asks for
	meter *openai.Meter
}

// FromWire notes one message, whose bytes are counted where they lie.
func (w *watch) FromWire(b mem.BufferSlice) error {
	whole := b.MaterializeToBuffer(mem.DefaultBufferPool()) // copies nothing that lies in one piece
	defer whole.Free()
	m, err := parse(whole.ReadOnlyData())
	if err != nil {
		return err
	}
	w.about, w.observed = m.about, m.observed
	switch m.about {
	case responseHeaders:
		w.headers(&m)
	case responseBody:
		w.body(&m)
	case responseTrailers:
		w.facts.SawEnd = true
	}
	return nil
}

// headers learns whose response this is. Only what admission let through has an endpoint's cluster, where the cluster is told,
// which other gateways do not; and only an answer that a worker was asked for is metered: any other is Envoy's own, and the access
// log tells all there is.
func (w *watch) headers(m *message) {
	if len(m.of.cluster) > 0 && envoy.EndpointOf(string(m.of.cluster)) == "" || len(m.of.upstream) == 0 {
		return
	}
	w.admission, w.served = string(m.of.id), string(m.of.upstream)
	op, _, _ := openai.Route("POST", string(m.of.path))
	w.meter = openai.NewMeter(op, m.sse)
	w.facts.Status, _ = strconv.Atoi(string(m.status))
	w.facts.Refused = m.refused
	w.facts.SawEnd = w.facts.SawEnd || m.end
}

func (w *watch) body(m *message) {
	if w.meter == nil {
		return
	}
	if len(m.body) > 0 && !w.begun {
		w.begun = true
		w.flights.FirstByte(w.admission, w.served, w.now(), w)
	}
	w.mu.Lock()
	_, _ = w.meter.Write(m.body) // never fails
	w.mu.Unlock()
	w.facts.ResponseBytes += int64(len(m.body))
	if m.end {
		w.facts.SawEnd = true
		w.end() // now, and not when Envoy lets go of the stream
	}
}

// end tells the flight what was seen. Telling it twice is harmless.
func (w *watch) end() {
	if w.admission == "" {
		return
	}
	w.mu.Lock()
	w.facts.Report = w.meter.Close()
	w.mu.Unlock()
	w.facts.At = w.now()
	facts := w.facts
	w.flights.End(w.admission, flight.Facts{Metered: &facts})
	w.admission = ""
}

// Report implements flight.Meter.
func (w *watch) Report() openai.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.meter.Report()
}
