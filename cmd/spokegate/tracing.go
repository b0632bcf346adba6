package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// otlpFlag adds -otlp.
func otlpFlag(f *flag.FlagSet, collector *string) {
	f.StringVar(collector, "otlp", os.Getenv("SPOKEGATE_OTLP"), "`host:port` of an OpenTelemetry collector for traces, by OTLP over unencrypted gRPC; empty: no tracing ($SPOKEGATE_OTLP)")
}

// tracing is where a role's spans go.
type tracing struct {
	tracer trace.Tracer // nil: there is none, and nothing of it costs anything
	stop   func(context.Context) error
}

// newTracing sends spans to a collector, in batches and from a bounded queue: what it cannot take is dropped, and no
// request waits. Nothing begins a trace here: a span is made only below one that the door's Envoy has decided to make.
func newTracing(ctx context.Context, collector, role, name, spoke string, log *slog.Logger) (tracing, error) {
	if collector == "" {
		return tracing{stop: func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(collector), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithTimeout(5*time.Second))
	if err != nil {
		return tracing{}, err
	}
	// The library has no other place for its complaints.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not exported", "error", err) }))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "spokegate-"+role), attribute.String("service.namespace", "spokegate"),
			attribute.String("service.instance.id", name), attribute.String("spokegate.spoke", spoke),
		)),
	)
	return tracing{tracer: provider.Tracer("github.com/spokegate/spokegate"), stop: provider.Shutdown}, nil
}
