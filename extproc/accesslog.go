package extproc

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
)

// Log receives Envoy's access log: one entry a request, a millisecond after its end.
type Log struct {
	alsv3.UnimplementedAccessLogServiceServer
	flights *flight.Table
	now     func() time.Time
	log     *slog.Logger
}

// NewLog feeds the flights of t.
func NewLog(t *flight.Table, now func() time.Time, log *slog.Logger) *Log {
	return &Log{flights: t, now: now, log: log}
}

// StreamAccessLogs receives until Envoy closes; Envoy never reads an answer.
func (l *Log) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			l.log.Warn("access log stream broke off", "error", err)
			return err
		}
		for _, e := range msg.GetHttpLogs().GetLogEntry() {
			l.entry(e)
		}
	}
}

// deniedDetails marks what admission itself refused: it has no flight.
const deniedDetails = "ext_authz_denied"

func (l *Log) entry(e *alsdatav3.HTTPAccessLogEntry) {
	details := e.GetResponse().GetResponseCodeDetails()
	id := e.GetRequest().GetRequestId()
	if id == "" || details == deniedDetails {
		return
	}
	facts := logged(e, l.now())
	l.flights.End(id, flight.Facts{Logged: facts})
	if facts.NoUpstream || facts.UpstreamCut || facts.Timeout || facts.Status >= http.StatusInternalServerError {
		l.log.Warn("request failed", "admission", id, "status", facts.Status, "code", facts.Details, "worker", facts.Served, "attempts", facts.Attempts)
	}
}

// logged puts Envoy's entry into the flight's words.
func logged(e *alsdatav3.HTTPAccessLogEntry, now time.Time) *flight.Logged {
	c, flags := e.GetCommonProperties(), e.GetCommonProperties().GetResponseFlags()
	began := c.GetStartTime().AsTime()
	out := &flight.Logged{
		Status:        int(e.GetResponse().GetResponseCode().GetValue()),
		ClientCut:     flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset(),
		UpstreamCut:   flags.GetUpstreamConnectionTermination() || flags.GetUpstreamRemoteReset() || flags.GetUpstreamProtocolError() || flags.GetLocalReset(),
		NoUpstream:    refused(c) || flags.GetNoHealthyUpstream() || flags.GetUpstreamConnectionFailure() || flags.GetUpstreamOverflow() || flags.GetNoRouteFound() || flags.GetNoClusterFound() || flags.GetUpstreamRetryLimitExceeded() && c.GetUpstreamRemoteAddress() == nil,
		Timeout:       flags.GetUpstreamRequestTimeout() || flags.GetStreamIdleTimeout() || flags.GetDurationTimeout(),
		Details:       e.GetResponse().GetResponseCodeDetails(),
		Served:        hostPort(c.GetUpstreamRemoteAddress()),
		Attempts:      int(c.GetUpstreamRequestAttemptCount()),
		RequestBytes:  int64(e.GetRequest().GetRequestBodyBytes()),
		ResponseBytes: int64(e.GetResponse().GetResponseBodyBytes()),
		At:            now,
	}
	if d := c.GetTimeToFirstDownstreamTxByte(); d != nil {
		out.FirstByte = began.Add(d.AsDuration())
	}
	if d := c.GetTimeToLastDownstreamTxByte(); d != nil {
		out.At = began.Add(d.AsDuration())
	}
	return out
}

// refused says whether the answer is a shim's refusal: no engine saw the request, metered or not.
func refused(c *alsdatav3.AccessLogCommon) bool {
	_, ok := c.GetMetadata().GetFilterMetadata()[envoy.OwnNamespace].GetFields()[envoy.RefusedHeader]
	return ok
}

func hostPort(a *corev3.Address) string {
	s := a.GetSocketAddress()
	if s == nil {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue())))
}
