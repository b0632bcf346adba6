package extproc

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/limits"
)

// TestFailuresAreLogged, once each and by admission; what went well, what a client did and what admission refused are not.
func TestFailuresAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		status  uint32
		details string
		flags   *alsdatav3.ResponseFlags
		logged  bool
	}{
		"went well":         {200, "via_upstream", nil, false},
		"the client left":   {0, "downstream_remote_disconnect", &alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}, false},
		"refused":           {503, deniedDetails, nil, false},
		"engine says no":    {400, "via_upstream", nil, false},
		"engine failed":     {500, "via_upstream", nil, true},
		"cut after headers": {200, "upstream_reset_after_response_started{connection_termination}", &alsdatav3.ResponseFlags{UpstreamConnectionTermination: true}, true},
		"no worker":         {503, "no_healthy_upstream", &alsdatav3.ResponseFlags{NoHealthyUpstream: true}, true},
		"took too long":     {200, "stream_idle_timeout", &alsdatav3.ResponseFlags{StreamIdleTimeout: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			flights := flight.New(flight.Config{Limiter: limits.NewMemory(limits.MemoryConfig{}), Journal: make(journal, 10)})
			raw := marshal(t, logMessage(&alsdatav3.HTTPAccessLogEntry{
				CommonProperties: &alsdatav3.AccessLogCommon{ResponseFlags: c.flags},
				Request:          &alsdatav3.HTTPRequestProperties{RequestId: id, Path: "/what-a-client-wrote", UserAgent: "what-a-client-wrote"},
				Response:         &alsdatav3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(c.status), ResponseCodeDetails: c.details},
			}))
			l := NewLog(flights, time.Now, slog.New(slog.NewJSONHandler(&out, nil)))
			if err := l.FromWire(mem.BufferSlice{mem.SliceBuffer(raw)}); err != nil {
				t.Fatal(err)
			}
			line := out.String()
			if (line != "") != c.logged || strings.Contains(line, "what-a-client-wrote") {
				t.Fatalf("logged %q", line)
			}
			if c.logged && !strings.Contains(line, `"admission":"`+id+`"`) {
				t.Errorf("logged %q", line)
			}
		})
	}
}
