package extauthz

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// begin starts the span of one check, below Envoy's, which ctx has. The client's own trace is linked and no parent: what a client sends
// shall not decide what is traced, nor write into a trace of ours.
func (s *Server) begin(ctx context.Context, q *question) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("spokegate.admission", q.id)),
	}
	if theirs := clientSpan(q.clientTrace); theirs.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: theirs}))
	}
	return s.Tracer.Start(ctx, "admission", opts...)
}

// clientSpan reads a traceparent; what is none gives an invalid span.
func clientSpan(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

// describe tells a span what was decided: names of the policy, and nothing that a client wrote.
func (a *answer) describe(span trace.Span) {
	if !span.IsRecording() {
		return
	}
	list := []attribute.KeyValue{
		attribute.String("spokegate.decision", a.code()), attribute.String("gen_ai.operation.name", a.op.GenAI()),
	}
	if a.key != nil {
		list = append(list, attribute.String("spokegate.key", a.key.ID), attribute.String("spokegate.team", a.key.Team.Name))
	}
	if a.model != nil {
		list = append(list, attribute.String("gen_ai.request.model", a.model.Name),
			attribute.String("spokegate.endpoint", a.model.Endpoint.Name))
	}
	if a.unserved != "" {
		list = append(list, attribute.String("spokegate.outcome", "not_served"))
		span.SetStatus(codes.Error, a.unserved)
	}
	span.SetAttributes(list...)
}
