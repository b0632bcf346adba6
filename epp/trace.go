package epp

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/spokegate/spokegate/router"
)

// describe tells a span what was picked.
func describe(span trace.Span, endpoint string, c router.Choice, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("spokegate.endpoint", endpoint))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return
	}
	span.SetAttributes(attribute.String("spokegate.worker.address", c.Addrs[0]), attribute.Int("spokegate.workers", len(c.Addrs)),
		attribute.Int("spokegate.prompt.blocks", c.Blocks), attribute.Int("spokegate.overlap.blocks", c.Overlap))
}
