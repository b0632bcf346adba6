package extproc

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

// Log receives Envoy's access log: an entry a second of each request that runs, and one a millisecond after its end.
type Log struct {
	flights *flight.Table
	now     func() time.Time
	log     *slog.Logger
}

// NewLog feeds the flights of t.
func NewLog(t *flight.Table, now func() time.Time, log *slog.Logger) *Log {
	return &Log{flights: t, now: now, log: log}
}

// Receive reads a stream until Envoy closes it; Envoy never reads an answer.
func (l *Log) Receive(stream grpc.ServerStream) error {
	for {
		err := stream.RecvMsg(l)
		if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
			return nil
		}
		if err != nil {
			l.log.Warn("access log stream broke off", "error", err)
			return err
		}
	}
}

// FromWire takes one message of a stream.
func (l *Log) FromWire(b mem.BufferSlice) error {
	whole := b.MaterializeToBuffer(mem.DefaultBufferPool()) // copies nothing that lies in one piece
	defer whole.Free()
	entries, err := httpEntries(whole.ReadOnlyData())
	if err != nil {
		return err
	}
	for _, b := range entries {
		e, err := parseEntry(b)
		if err != nil {
			return err
		}
		l.entry(&e)
	}
	return nil
}

// wholeDetails is what Envoy says of an answer that has come and gone as the worker gave it; whatever broke it off stands in its place.
const wholeDetails = "via_upstream"

// deniedDetails marks what admission itself refused: it has no flight.
const deniedDetails = "ext_authz_denied"

func (l *Log) entry(e *logEntry) {
	if len(e.id) == 0 || string(e.details) == deniedDetails {
		return
	}
	id, facts := string(e.id), logged(e, l.now())
	if e.kind != kindUnset && e.kind != kindEnd {
		l.running(id, e, facts)
		return
	}
	l.flights.End(id, flight.Facts{Logged: facts, Metered: read(e, facts)})
	if facts.NoUpstream || facts.UpstreamCut || facts.Timeout || facts.Status >= http.StatusInternalServerError {
		l.log.Warn("request failed", "admission", id, "status", facts.Status, "code", facts.Details, "worker", facts.Served, "attempts", facts.Attempts)
	}
}

// running takes what has passed of a request that is not over.
func (l *Log) running(id string, e *logEntry, so *flight.Logged) {
	if !so.FirstByte.IsZero() {
		l.flights.FirstByte(id, so.Served, so.FirstByte, nil)
	}
	m := read(e, so)
	if m != nil {
		m.SawEnd = false
	}
	l.flights.Passed(id, m)
}

// read is what the last note that has passed says of an answer, in the place of a meter, which was not told of it; nil: nobody noted
// it, or it came to its end without a note, and nobody knows.
func read(e *logEntry, l *flight.Logged) *flight.Metered {
	if len(e.own.note) == 0 || e.own.refused {
		return nil
	}
	broken := l.ClientCut || l.UpstreamCut || l.Timeout || l.Details != wholeDetails
	m := &flight.Metered{Report: openai.Report{CountedFrom: usage.CountedNone}, Status: l.Status, ResponseBytes: l.ResponseBytes, SawEnd: !broken, At: l.At}
	if string(e.own.note) == envoy.NoteStream {
		if !broken && l.ResponseBytes > 0 {
			return nil
		}
		return m
	}
	path, _, _ := strings.Cut(string(e.path), "?")
	op, _, _ := openai.Route(http.MethodPost, path)
	report, size := openai.ReadNote(op, e.own.note)
	if size > 0 { // it came whole: all has passed if as many bytes have as the shim had before it sent the first
		m.SawEnd = size == l.ResponseBytes
		report.Terminal = report.Terminal && m.SawEnd
	}
	m.Report = report
	return m
}

// logged puts Envoy's entry into the flight's words. A shim's refusal means that no engine saw the request, metered or not.
func logged(e *logEntry, now time.Time) *flight.Logged {
	out := &flight.Logged{
		Status:      int(e.status),
		ClientCut:   e.has(flagClientClosed, flagClientReset),
		UpstreamCut: e.has(flagTerminated, flagRemoteReset, flagProtocolError, flagLocalReset),
		NoUpstream: e.own.refused || e.has(flagUnhealthy, flagNotConnected, flagOverflow, flagNoRoute, flagNoCluster) ||
			e.has(flagRetryLimit) && !e.tried,
		Timeout:       e.has(flagRequestTimeout, flagIdleTimeout, flagDuration),
		Details:       string(e.details),
		Served:        e.address.String(),
		Attempts:      int(e.attempts),
		RequestBytes:  int64(e.received),
		ResponseBytes: int64(e.sent),
		At:            now,
	}
	began := e.start.time()
	if e.firstAt {
		out.FirstByte = began.Add(e.first.duration())
	}
	if e.lastAt {
		out.At = began.Add(e.last.duration())
	}
	return out
}
