package epp

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/spokegate/spokegate/router"
)

// choose picks for the stream, in a span if there is tracing.
func (st *stream) choose(now time.Time) (router.Choice, error) {
	endpoint := st.endpoint()
	if st.traced == nil {
		return st.server.Picker.pick(now, endpoint, st.text(), st.subset)
	}
	_, span := st.server.Tracer.Start(st.traced, "pick")
	defer span.End()
	choice, err := st.server.Picker.pick(now, endpoint, st.text(), st.subset)
	if !span.IsRecording() {
		return choice, err
	}
	span.SetAttributes(attribute.String("spokegate.admission", st.headers["x-request-id"]), attribute.String("spokegate.endpoint", endpoint))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return choice, err
	}
	span.SetAttributes(attribute.String("spokegate.worker.address", choice.Addrs[0]), attribute.Int("spokegate.workers", len(choice.Addrs)),
		attribute.Int("spokegate.prompt.blocks", choice.Blocks), attribute.Int("spokegate.overlap.blocks", choice.Overlap))
	return choice, nil
}
