package extauthz

import (
	"fmt"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
)

// TestReports: workers are asked to report on all answers that come whole; one in some dozens is watched, and its worker asked as
// any.
func TestReports(t *testing.T) {
	g := newGate(t)
	n := 0
	asked := func(id, body string) bool {
		t.Helper()
		resp, err := g.ask(t, t.Context(), func(r *authv3.AttributeContext_HttpRequest) {
			r.Headers["x-request-id"], r.RawBody = id, []byte(body)
		})
		if err != nil || resp.GetOkResponse() == nil {
			t.Fatal(resp, err)
		}
		if resp.GetDynamicMetadata().GetFields()[envoy.WatchKey].GetStringValue() == envoy.Watch {
			n++
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
	for i := range 100 {
		if asked(fmt.Sprint("stream ", i), stream) {
			t.Fatal("asked to report on a stream")
		}
	}
	if n != 0 {
		t.Errorf("%d answers are watched that nobody reports on", n)
	}
	for i := range 500 {
		if !asked(fmt.Sprint("whole ", i), whole) {
			t.Fatal("not asked to report on an answer that comes whole")
		}
	}
	if n < 1 || n > 100 { // of some 16
		t.Errorf("%d answers of 500 are watched", n)
	}
}
