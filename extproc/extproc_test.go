package extproc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	alsdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal hands records to the test.
type journal chan *usagev1.Record

func (j journal) Append(r *usagev1.Record) { j <- r }

// bench is a meter and a log behind real gRPC, with one open flight.
type bench struct {
	t       *testing.T
	records journal
	flights *flight.Table
	meter   extprocv3.ExternalProcessorClient
	log     alsv3.AccessLogServiceClient
}

const id = "0f5c6a3e-0000-4000-8000-000000000001"

// newBench makes one whose flight waits so long for the other half of the facts.
func newBench(t *testing.T, grace time.Duration) *bench {
	t.Helper()
	b := &bench{t: t, records: make(journal, 100)}
	b.flights = flight.New(flight.Config{
		Limiter: limits.NewMemory(limits.MemoryConfig{}), Journal: b.records, Spoke: "s", Door: "d", Grace: grace,
	})
	log := slog.New(slog.DiscardHandler)
	g := grpc.NewServer(wire.Option())
	Register(g, NewMeter(b.flights, time.Now, prometheus.NewRegistry(), log), NewLog(b.flights, time.Now, log))
	lis := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(lis) })
	wg.Go(func() { _ = b.flights.Run(ctx) })
	conn, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		cancel()
		wg.Wait()
	})
	b.meter, b.log = extprocv3.NewExternalProcessorClient(conn), alsv3.NewAccessLogServiceClient(conn)
	b.flights.Open(flight.Admission{ID: id, Key: "k", Team: "t", Model: "m", Endpoint: "e", Op: openai.Chat, At: time.Now()}, limits.Hold{})
	if r := b.next(); r.GetKind() != "admitted" {
		t.Fatalf("first record is %v", r)
	}
	return b
}

func (b *bench) next() *usagev1.Record {
	b.t.Helper()
	select {
	case r := <-b.records:
		return r
	case <-time.After(2 * time.Minute):
		b.t.Fatal("no record came")
		return nil
	}
}

// stream is one metered request; observing as our door has it, or waiting for answers as other gateways do.
func (b *bench) stream(ctx context.Context, observing bool, msgs ...*extprocv3.ProcessingRequest) extprocv3.ExternalProcessor_ProcessClient {
	b.t.Helper()
	s, err := b.meter.Process(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range msgs {
		m.ObservabilityMode = observing
		if err := s.Send(m); err != nil {
			b.t.Fatal(err)
		}
		if !observing {
			resp, err := s.Recv()
			if err != nil {
				b.t.Fatal(err)
			}
			if got, want := fmt.Sprintf("%T", resp.GetResponse()), fmt.Sprintf("%T", m.GetRequest()); got[len("*ext_procv3.ProcessingResponse"):] != want[len("*ext_procv3.ProcessingRequest"):] {
				b.t.Fatalf("%s was answered with %s", want, got)
			}
		}
	}
	return s
}

func headers(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

// admitted are response headers as they come of an admitted request that a worker answered.
func admitted(pairs ...string) *extprocv3.ProcessingRequest {
	return attributed(responseHeadersMessage(pairs...), envoy.IDAttribute, id, envoy.PathAttribute, "/v1/chat/completions",
		envoy.ClusterAttribute, envoy.ClusterName("e"), envoy.UpstreamAttribute, "10.0.0.1:8000")
}

func responseHeadersMessage(pairs ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headers(pairs...)}}}
}

func attributed(r *extprocv3.ProcessingRequest, pairs ...string) *extprocv3.ProcessingRequest {
	fields := map[string]*structpb.Value{}
	for i := 0; i < len(pairs); i += 2 {
		fields[pairs[i]] = structpb.NewStringValue(pairs[i+1])
	}
	r.Attributes = map[string]*structpb.Struct{envoy.AttributesKey: {Fields: fields}}
	return r
}

func body(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

func (b *bench) logged(e *alsdatav3.HTTPAccessLogEntry) {
	b.t.Helper()
	s, err := b.log.StreamAccessLogs(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := s.Send(logMessage(e)); err != nil {
		b.t.Fatal(err)
	}
	_, _ = s.CloseAndRecv()
}

func entry(status uint32, flags *alsdatav3.ResponseFlags) *alsdatav3.HTTPAccessLogEntry {
	return &alsdatav3.HTTPAccessLogEntry{
		CommonProperties: &alsdatav3.AccessLogCommon{
			ResponseFlags: flags, StartTime: timestamppb.Now(), UpstreamRequestAttemptCount: 2,
			TimeToFirstDownstreamTxByte: durationpb.New(time.Millisecond), TimeToLastDownstreamTxByte: durationpb.New(2 * time.Millisecond),
			UpstreamRemoteAddress: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8000}}}},
		},
		Request:  &alsdatav3.HTTPRequestProperties{RequestId: id, RequestBodyBytes: 11},
		Response: &alsdatav3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(status), ResponseBodyBytes: 22, ResponseCodeDetails: "via_upstream"},
	}
}

const sse = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n"

func TestMeterAndLogMakeOneRecord(t *testing.T) {
	for _, logFirst := range []bool{true, false} {
		for _, observing := range []bool{true, false} {
			t.Run(fmt.Sprintf("log first %v, observing %v", logFirst, observing), func(t *testing.T) {
				b := newBench(t, time.Hour)
				if logFirst {
					b.logged(entry(200, nil))
				}
				s := b.stream(t.Context(), observing, admitted(":status", "200", "content-type", "text/event-stream"),
					body(sse, false), body("data: [DONE]\n\n", true))
				if !logFirst {
					b.logged(entry(200, nil))
				}
				r := b.next()
				if r.GetOutcome() != "complete" || r.GetPromptTokens() != 7 || r.GetCompletionTokens() != 1 || r.GetCountedFrom() != "engine" ||
					len(r.GetAnomalies()) != 0 || r.GetWorker() != "10.0.0.1:8000" || r.GetAttempt() != 2 || r.GetStatus() != 200 {
					t.Errorf("record %v", r)
				}
				_ = s.CloseSend()
				if _, err := s.Recv(); err != io.EOF {
					t.Errorf("the stream ends with %v", err)
				}
				if len(b.records) != 0 {
					t.Errorf("a second record: %v", <-b.records)
				}
			})
		}
	}
}

// TestEveryEndingIsAccounted: however Envoy lets go of the stream, what passed until then is in the record.
func TestEveryEndingIsAccounted(t *testing.T) {
	for name, let := range map[string]func(s extprocv3.ExternalProcessor_ProcessClient, cancel context.CancelFunc){
		"half-close": func(s extprocv3.ExternalProcessor_ProcessClient, _ context.CancelFunc) { _ = s.CloseSend() },
		"cancel":     func(_ extprocv3.ExternalProcessor_ProcessClient, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Hour)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			// An answer to each message shows that it was taken before the stream ends.
			s := b.stream(ctx, false, admitted(":status", "200", "content-type", "text/event-stream"), body(sse, false))
			let(s, cancel)
			b.logged(entry(200, &alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}))
			r := b.next()
			if r.GetOutcome() != "client_cut" || r.GetCompletionTokens() != 1 || r.GetPromptTokens() != 7 {
				t.Errorf("record %v", r)
			}
		})
	}
}

func TestMeterIgnoresWhatIsNoAnswerOfAWorker(t *testing.T) {
	b := newBench(t, time.Hour)
	pairs := []string{envoy.IDAttribute, id, envoy.PathAttribute, "/v1/chat/completions", envoy.ClusterAttribute, envoy.ClusterName("e"),
		envoy.UpstreamAttribute, "10.0.0.1:8000"}
	but := func(name, value string) []string {
		got := slices.Clone(pairs)
		i := slices.Index(got, name)
		if value == "" {
			return slices.Delete(got, i, i+2)
		}
		got[i+1] = value
		return got
	}
	for name, attributes := range map[string][]string{
		"none":                    nil,
		"a denial":                {envoy.IDAttribute, id, envoy.PathAttribute, "/v1/chat/completions"},
		"a cluster of the door's": but(envoy.ClusterAttribute, "spokegate-door"),
		"no worker was asked":     but(envoy.UpstreamAttribute, ""),
		"another admission":       but(envoy.IDAttribute, "other"),
	} {
		s := b.stream(t.Context(), false, attributed(responseHeadersMessage(":status", "401"), attributes...), body(`{"error":{}}`, true))
		_ = s.CloseSend()
		if _, err := s.Recv(); err != io.EOF {
			t.Errorf("%s: the stream ends with %v", name, err)
		}
	}
	if len(b.records) != 0 || b.flights.Len() != 1 {
		t.Fatalf("%d records, %d flights", len(b.records), b.flights.Len())
	}
}

// TestMeterBehindAnotherGateway: it is not told of clusters, but of workers.
func TestMeterBehindAnotherGateway(t *testing.T) {
	b := newBench(t, time.Hour)
	b.logged(entry(200, nil))
	s := b.stream(t.Context(), true, attributed(responseHeadersMessage(":status", "200", "content-type", "text/event-stream"),
		envoy.IDAttribute, id, envoy.PathAttribute, "/v1/chat/completions", envoy.UpstreamAttribute, "10.0.0.1:8000"), body(sse, true))
	defer s.CloseSend()
	if r := b.next(); r.GetOutcome() != "complete" || r.GetPromptTokens() != 7 || r.GetCompletionTokens() != 1 {
		t.Errorf("record %v", r)
	}
}

func TestMeterRefusesWhatIsNoMessage(t *testing.T) {
	var log bytes.Buffer
	m := NewMeter(nil, time.Now, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err := m.Process(&scripted{messages: [][]byte{{0xff}}}); err == nil || !strings.Contains(log.String(), "broke off") {
		t.Errorf("%v, logged %q", err, log.String())
	}
}

func TestRefusalOfAShimIsNotServed(t *testing.T) {
	b := newBench(t, time.Hour)
	b.stream(t.Context(), true, admitted(":status", "503", envoy.RefusedHeader, "draining"), body(`{"error":{}}`, true))
	b.logged(entry(503, nil))
	if r := b.next(); r.GetOutcome() != "not_served" || r.CompletionTokens != nil {
		t.Errorf("record %v", r)
	}
}

// TestRefusalOfAShimIsNotServedWithoutAMeter: the access log alone tells as much.
func TestRefusalOfAShimIsNotServedWithoutAMeter(t *testing.T) {
	for refusal, want := range map[string]string{"draining": "not_served", "": "upstream_error"} {
		b := newBench(t, time.Millisecond)
		e := entry(503, nil)
		if refusal != "" {
			e.CommonProperties.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.OwnNamespace: {
				Fields: map[string]*structpb.Value{envoy.RefusedHeader: structpb.NewStringValue(refusal)}}}}
		}
		b.logged(e)
		if r := b.next(); r.GetOutcome() != want {
			t.Errorf("refusal %q: record %v", refusal, r)
		}
	}
}

// parsed is e as the flight learns of it.
func parsed(t *testing.T, e *alsdatav3.HTTPAccessLogEntry) *flight.Logged {
	t.Helper()
	read, err := parseEntry(marshal(t, e))
	if err != nil {
		t.Fatal(err)
	}
	return logged(&read, time.Now())
}

func TestLogPutsFlagsIntoOurWords(t *testing.T) {
	for name, c := range map[string]struct {
		flags *alsdatav3.ResponseFlags
		want  func(*flight.Logged) bool
	}{
		"DC":  {&alsdatav3.ResponseFlags{DownstreamConnectionTermination: true}, func(l *flight.Logged) bool { return l.ClientCut }},
		"DR":  {&alsdatav3.ResponseFlags{DownstreamRemoteReset: true}, func(l *flight.Logged) bool { return l.ClientCut }},
		"UC":  {&alsdatav3.ResponseFlags{UpstreamConnectionTermination: true}, func(l *flight.Logged) bool { return l.UpstreamCut }},
		"UR":  {&alsdatav3.ResponseFlags{UpstreamRemoteReset: true}, func(l *flight.Logged) bool { return l.UpstreamCut }},
		"UPE": {&alsdatav3.ResponseFlags{UpstreamProtocolError: true}, func(l *flight.Logged) bool { return l.UpstreamCut }},
		"UH":  {&alsdatav3.ResponseFlags{NoHealthyUpstream: true}, func(l *flight.Logged) bool { return l.NoUpstream }},
		"UF":  {&alsdatav3.ResponseFlags{UpstreamConnectionFailure: true}, func(l *flight.Logged) bool { return l.NoUpstream }},
		"UO":  {&alsdatav3.ResponseFlags{UpstreamOverflow: true}, func(l *flight.Logged) bool { return l.NoUpstream }},
		"NC":  {&alsdatav3.ResponseFlags{NoClusterFound: true}, func(l *flight.Logged) bool { return l.NoUpstream }},
		"UT":  {&alsdatav3.ResponseFlags{UpstreamRequestTimeout: true}, func(l *flight.Logged) bool { return l.Timeout }},
		"SI":  {&alsdatav3.ResponseFlags{StreamIdleTimeout: true}, func(l *flight.Logged) bool { return l.Timeout }},
	} {
		l := parsed(t, entry(200, c.flags))
		n := 0
		for _, b := range []bool{l.ClientCut, l.UpstreamCut, l.NoUpstream, l.Timeout} {
			if b {
				n++
			}
		}
		if !c.want(l) || n != 1 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l := parsed(t, entry(200, nil)); l.ClientCut || l.UpstreamCut || l.NoUpstream || l.Timeout || l.FirstByte.IsZero() || l.RequestBytes != 11 || l.ResponseBytes != 22 {
		t.Errorf("no flags: %+v", l)
	}
	if l := parsed(t, &alsdatav3.HTTPAccessLogEntry{}); l.Served != "" || l.Status != 0 || !l.FirstByte.IsZero() {
		t.Errorf("an empty entry: %+v", l)
	}
}
