package test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector takes spans over OTLP, as an OpenTelemetry collector does.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	addr string

	mu    sync.Mutex
	spans []span
	raw   strings.Builder // all that was received, as text
}

// span is one span as it was received.
type span struct {
	service, name, kind   string
	trace, id, parent     string // in hex
	attributes, resource  map[string]string
	events, linked        []string // names, and the traces that it is linked to
	began, ended, eventAt uint64   // in ns; of the last event
}

func startCollector(t testing.TB) *collector {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{addr: lis.Addr().String()}
	g := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(g, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := g.Serve(lis); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { g.Stop(); <-ended })
	return c
}

// Export takes a batch.
func (c *collector) Export(_ context.Context, req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.WriteString(req.String())
	for _, rs := range req.GetResourceSpans() {
		resource := attributesOf(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, spanOf(s, resource))
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func spanOf(s *tracev1.Span, resource map[string]string) span {
	out := span{
		service: resource["service.name"], name: s.GetName(), kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
		attributes: attributesOf(s.GetAttributes()), resource: resource, began: s.GetStartTimeUnixNano(), ended: s.GetEndTimeUnixNano(),
	}
	for _, e := range s.GetEvents() {
		out.events, out.eventAt = append(out.events, e.GetName()), e.GetTimeUnixNano()
	}
	for _, l := range s.GetLinks() {
		out.linked = append(out.linked, hex.EncodeToString(l.GetTraceId()))
	}
	return out
}

func attributesOf(list []*commonv1.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out[kv.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonv1.AnyValue_BoolValue:
			out[kv.GetKey()] = fmt.Sprint(v.BoolValue)
		default:
			out[kv.GetKey()] = kv.GetValue().String()
		}
	}
	return out
}

// all is what was received so far.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]span(nil), c.spans...)
}

// said is all that was received, as text.
func (c *collector) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// of gives the spans of one admission by service and name, "spokegate-door/admission": those that carry it, and those of
// their trace.
func (c *collector) of(admission string) map[string][]span {
	spans, traces := c.all(), map[string]bool{}
	for _, s := range spans {
		if s.attributes["spokegate.admission"] == admission {
			traces[s.trace] = true
		}
	}
	out := map[string][]span{}
	for _, s := range spans {
		if traces[s.trace] {
			out[s.service+"/"+s.name] = append(out[s.service+"/"+s.name], s)
		}
	}
	return out
}
