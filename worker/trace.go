package worker

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/spokegate/spokegate/usage"
)

// beginSpan starts the span of an attempt, below that of the door's Envoy. It comes after the context was verified: nobody
// else's traceparent is looked at.
func (a *attempt) beginSpan(r *http.Request) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	t := a.trusted
	_, a.span = a.w.cfg.Tracer.Start(ctx, "worker", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("spokegate.admission", t.Admission), attribute.String("spokegate.key", t.Key),
		attribute.String("spokegate.team", t.Team), attribute.String("spokegate.endpoint", t.Endpoint),
		attribute.String("spokegate.worker", a.w.cfg.Name), attribute.Int("spokegate.attempt", int(a.number)),
		attribute.String("gen_ai.operation.name", a.op.GenAI()), attribute.String("gen_ai.request.model", t.Model),
	))
}

// endSpan says how the attempt ended, and what it used as far as that is known.
func (a *attempt) endSpan() {
	defer a.span.End()
	if !a.span.IsRecording() {
		return
	}
	if a.outcome == "" { // refused here, or by the wire to the engine
		a.outcome = usage.OutcomeNotServed
	}
	list := []attribute.KeyValue{attribute.String("spokegate.outcome", a.outcome)}
	if a.status != 0 {
		list = append(list, attribute.Int("http.response.status_code", a.status))
	}
	if a.request != nil {
		list = append(list, attribute.Bool("gen_ai.request.stream", a.request.Stream))
	}
	u := a.report.Usage
	for name, n := range map[string]*int64{
		"gen_ai.usage.input_tokens": u.Prompt, "gen_ai.usage.output_tokens": u.Completion,
		"gen_ai.usage.cache_read.input_tokens": u.Cached, "gen_ai.usage.reasoning.output_tokens": u.Reasoning,
	} {
		if n != nil {
			list = append(list, attribute.Int64(name, *n))
		}
	}
	a.span.SetAttributes(list...)
	if !a.first.IsZero() {
		a.span.AddEvent("first_byte", trace.WithTimestamp(a.first))
	}
	if a.outcome != complete {
		a.span.SetStatus(codes.Error, a.outcome)
	}
}
