package extauthz

import (
	"fmt"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
)

// TestReports: workers are asked to report on answers that come whole, but for one in some dozens.
func TestReports(t *testing.T) {
	g := newGate(t)
	asked := func(id, body string) bool {
		t.Helper()
		resp, err := g.ask(t, t.Context(), func(r *authv3.AttributeContext_HttpRequest) {
			r.Headers["x-request-id"], r.RawBody = id, []byte(body)
		})
		if err != nil || resp.GetOkResponse() == nil {
			t.Fatal(resp, err)
		}
		g.Flights.End(id, nothingPassed(time.Now()))
		g.Flights.End(id, flight.Facts{Logged: &flight.Logged{}})
		for _, h := range resp.GetOkResponse().GetHeaders() {
			if h.GetHeader().GetKey() == envoy.ContextHeader {
				c, err := g.verifier.Verify(h.GetHeader().GetValue(), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				return c.Reports
			}
		}
		t.Fatal("no context")
		return false
	}
	const whole, stream = `{"model":"cheap","messages":[]}`, `{"model":"cheap","messages":[],"stream":true}`
	if asked("before", whole) {
		t.Error("asked by a door that does not read reports")
	}
	g.Reports = true
	n := 0
	for i := range 100 {
		if asked(fmt.Sprint("stream ", i), stream) {
			t.Fatal("asked to report on a stream")
		}
		if asked(fmt.Sprint("whole ", i), whole) {
			n++
		}
	}
	if n < 90 || n == 100 {
		t.Errorf("asked to report on %d answers of 100", n)
	}
}
