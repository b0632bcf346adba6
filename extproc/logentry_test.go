package extproc

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
)

// ended is what is taken of an entry.
type ended struct {
	ID     string
	Kind   uint64
	Logged *flight.Logged
	Read   *flight.Metered
}

// loggedByProtobuf is the oracle: the same view of an entry, by way of protobuf.
func loggedByProtobuf(e *alsdatav3.HTTPAccessLogEntry, now time.Time) ended {
	c, flags := e.GetCommonProperties(), e.GetCommonProperties().GetResponseFlags()
	_, refused := c.GetMetadata().GetFilterMetadata()[envoy.OwnNamespace].GetFields()[envoy.RefusedHeader]
	out := &flight.Logged{
		Status:      int(e.GetResponse().GetResponseCode().GetValue()),
		ClientCut:   flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset(),
		UpstreamCut: flags.GetUpstreamConnectionTermination() || flags.GetUpstreamRemoteReset() || flags.GetUpstreamProtocolError() || flags.GetLocalReset(),
		NoUpstream: refused || flags.GetNoHealthyUpstream() || flags.GetUpstreamConnectionFailure() || flags.GetUpstreamOverflow() ||
			flags.GetNoRouteFound() || flags.GetNoClusterFound() || flags.GetUpstreamRetryLimitExceeded() && c.GetUpstreamRemoteAddress() == nil,
		Timeout:       flags.GetUpstreamRequestTimeout() || flags.GetStreamIdleTimeout() || flags.GetDurationTimeout(),
		Details:       e.GetResponse().GetResponseCodeDetails(),
		Attempts:      int(c.GetUpstreamRequestAttemptCount()),
		RequestBytes:  int64(e.GetRequest().GetRequestBodyBytes()),
		ResponseBytes: int64(e.GetResponse().GetResponseBodyBytes()),
		At:            now,
	}
	if s := c.GetUpstreamRemoteAddress().GetSocketAddress(); s != nil {
		out.Served = net.JoinHostPort(s.GetAddress(), strconv.Itoa(int(s.GetPortValue())))
	}
	began := c.GetStartTime().AsTime()
	if d := c.GetTimeToFirstDownstreamTxByte(); d != nil {
		out.FirstByte = began.Add(d.AsDuration())
	}
	if d := c.GetTimeToLastDownstreamTxByte(); d != nil {
		out.At = began.Add(d.AsDuration())
	}
	return ended{e.GetRequest().GetRequestId(), uint64(c.GetAccessLogType()), out, readByProtobuf(e, out)}
}

// readByProtobuf is what the last note says, as the access log tells it.
func readByProtobuf(e *alsdatav3.HTTPAccessLogEntry, l *flight.Logged) *flight.Metered {
	own := e.GetCommonProperties().GetMetadata().GetFilterMetadata()[envoy.OwnNamespace].GetFields()
	note := own[envoy.NoteHeader].GetStringValue()
	path, _, _ := strings.Cut(e.GetRequest().GetPath(), "?")
	op, _, _ := openai.Route("POST", path)
	whole := !l.ClientCut && !l.UpstreamCut && !l.Timeout && l.Details == "via_upstream"
	out := &flight.Metered{Report: openai.Report{CountedFrom: "none"}, Status: l.Status, ResponseBytes: l.ResponseBytes, SawEnd: whole, At: l.At}
	switch {
	case note == "" || own[envoy.RefusedHeader] != nil || note == envoy.NoteStream && whole && l.ResponseBytes > 0:
		return nil
	case note != envoy.NoteStream:
		r, size := openai.ReadNote(op, []byte(note))
		if size > 0 {
			out.SawEnd = size == l.ResponseBytes
			r.Terminal = r.Terminal && out.SawEnd
		}
		out.Report = r
	}
	return out
}

// view is that of all entries of a message.
func view(b []byte, now time.Time) (all []ended, err error) {
	entries, err := httpEntries(b)
	for _, b := range entries {
		e, err := parseEntry(b)
		if err != nil {
			return nil, err
		}
		l := logged(&e, now)
		all = append(all, ended{string(e.id), e.kind, l, read(&e, l)})
	}
	return all, err
}

// FuzzLog: every message of the access log that protobuf can read is read here, and as the same.
func FuzzLog(f *testing.F) {
	now := time.Unix(1_700_000_000, 0).UTC()
	for _, e := range sampleEntries() {
		b := marshal(f, logMessage(e, e))
		f.Add(b)
		f.Add(slices.Concat(b, b))
		f.Add(slices.Concat(marshal(f, logMessage(entry(500, nil))), b))
		c := marshal(f, e) // of two entries in one, the fields are merged
		b = marshal(f, entry(500, &alsdatav3.ResponseFlags{LocalReset: true}))
		f.Add(wrap(wrap(slices.Concat(b, c), 1), 2))
		f.Add(slices.Concat(wrap(wrap(slices.Concat(c, b), 1), 2), wrap(nil, 3)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m alsv3.StreamAccessLogsMessage
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		var want []ended
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			want = append(want, loggedByProtobuf(e, now))
		}
		got, err := view(b, now)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-protobuf +ours):\n%s", diff)
		}
	})
}

// TestEachFlagIsRead: an entry with any one of Envoy's flags is the same by protobuf.
func TestEachFlagIsRead(t *testing.T) {
	now := time.Now()
	fields := (&alsdatav3.ResponseFlags{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		flags := &alsdatav3.ResponseFlags{}
		m := flags.ProtoReflect()
		m.Set(fields.Get(i), m.NewField(fields.Get(i)))
		if fields.Get(i).Message() == nil {
			m.Set(fields.Get(i), protoreflect.ValueOfBool(true))
		}
		for _, e := range []*alsdatav3.HTTPAccessLogEntry{entry(200, flags), {CommonProperties: &alsdatav3.AccessLogCommon{ResponseFlags: flags}}} {
			got, err := view(marshal(t, logMessage(e)), now)
			if diff := cmp.Diff([]ended{loggedByProtobuf(e, now)}, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-protobuf +ours):\n%s", fields.Get(i).Name(), err, diff)
			}
		}
	}
}

func sampleEntries() []*alsdatav3.HTTPAccessLogEntry {
	whole, piped := entry(200, &alsdatav3.ResponseFlags{UpstreamRetryLimitExceeded: true}), entry(503, &alsdatav3.ResponseFlags{NoHealthyUpstream: true})
	whole.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		"other": {}, envoy.OwnNamespace: {Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(1), envoy.RefusedHeader: structpb.NewStringValue("draining")}}}}
	var noted []*alsdatav3.HTTPAccessLogEntry
	for i, note := range []string{envoy.NoteStream, `{"prompt_tokens":7,"events":2}`, `{"prompt_tokens":7,"terminal":true,"bytes":812}`, "?"} {
		e := entry(200, nil)
		e.Request.Path, e.Response.ResponseBodyBytes = "/v1/responses?x", 812
		e.CommonProperties.AccessLogType = alsdatav3.AccessLogType(i + 4)
		e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.OwnNamespace: {Fields: map[string]*structpb.Value{
			envoy.NoteHeader: structpb.NewStringValue(note), "x": structpb.NewNumberValue(7)}}}}
		noted = append(noted, e)
	}
	piped.CommonProperties.UpstreamRemoteAddress = &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/p"}}}
	return append(noted, &alsdatav3.HTTPAccessLogEntry{}, whole, piped)
}

// wrap makes b the field of a message.
func wrap(b []byte, field protowire.Number) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
}

func logMessage(entries ...*alsdatav3.HTTPAccessLogEntry) *alsv3.StreamAccessLogsMessage {
	return &alsv3.StreamAccessLogsMessage{LogEntries: &alsv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &alsv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: entries}}}
}

// BenchmarkLog reads the message of one request.
func BenchmarkLog(b *testing.B) {
	raw := marshal(b, logMessage(sampleEntries()[1]))
	now := time.Now()
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := view(raw, now); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read by protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m alsv3.StreamAccessLogsMessage
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
			loggedByProtobuf(m.GetHttpLogs().GetLogEntry()[0], now)
		}
	})
}
