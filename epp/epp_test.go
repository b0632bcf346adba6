package epp

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pool is a picker over workers of the endpoint "large" that are ready and known to Envoy.
func pool(t *testing.T, addrs ...string) (*Picker, *fleet.Fleet) {
	t.Helper()
	f := fleet.New()
	for i, a := range addrs {
		if _, err := f.Join(fleet.Worker{Name: fmt.Sprintf("w%d", i), Endpoint: "large", Addr: a, Epoch: "1", State: fleet.Ready}); err != nil {
			t.Fatal(err)
		}
	}
	acknowledged(f, "large")
	return New(Config{Fleet: f, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry()}), f
}

func acknowledged(f *fleet.Fleet, endpoints ...string) {
	has := map[string]uint64{}
	for _, e := range endpoints {
		has[e] = f.View().Version
	}
	f.Acked(has)
}

// naming is a policy with these endpoints, and no more than it must have beside.
func naming(t *testing.T, endpoints ...string) *policy.Current {
	t.Helper()
	c := &policy.Current{}
	name(t, c, endpoints...)
	return c
}

func name(t *testing.T, c *policy.Current, endpoints ...string) {
	t.Helper()
	_, h := identity.NewKey()
	models, list := "models:\n", "endpoints:\n"
	for _, e := range endpoints {
		models += fmt.Sprintf("  - {name: m-%s, endpoint: %s}\n", e, e)
		list += fmt.Sprintf("  - {name: %s}\n", e)
	}
	text := models + list + "teams:\n  - {name: t, models: [\"*\"]}\nkeys:\n  - {id: k, team: t, sha256: \"" + h.String() + "\"}\n"
	set, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.Store(snap)
}

func load(p *Picker) (requests int) {
	for _, w := range p.routers["large"].Load() {
		requests += w.Requests
	}
	return requests
}

func chat(t *testing.T, text string) (*openai.Request, []byte) {
	t.Helper()
	return scanned(t, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%q}]}`, text))
}

func scanned(t *testing.T, body []byte) (*openai.Request, []byte) {
	t.Helper()
	req, err := openai.Scan(openai.Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	return req, body
}

func TestPickReturnsToTheWorkerThatHoldsThePrefix(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")
	now := time.Now()
	long := strings.Repeat("a long system prompt ", 200)
	req, body := chat(t, long)
	first, err := p.Pick(t.Context(), now, "large", req, body)
	if err != nil {
		t.Fatal(err)
	}
	first.Booking.Release()
	for i := range 20 {
		req, body := chat(t, long+fmt.Sprint(" and turn ", i))
		c, err := p.Pick(t.Context(), now, "large", req, body)
		if err != nil {
			t.Fatal(err)
		}
		if c.Addrs[0] != first.Addrs[0] || c.Overlap == 0 {
			t.Fatalf("turn %d went to %s with overlap %d, want %s\n%s", i, c.Addrs[0], c.Overlap, first.Addrs[0], c.Explain())
		}
		c.Booking.Release()
	}
}

func TestPickerFollowsTheFleet(t *testing.T) {
	p, f := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	f.Update("w0", fleet.Draining)
	req, body := chat(t, "x")
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := p.Pick(t.Context(), time.Now(), "large", req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		if len(c.Addrs) == 1 && c.Addrs[0] == "10.0.0.2:1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still names %v", c.Addrs)
		}
	}
	if _, err := p.Pick(t.Context(), time.Now(), "other", req, body); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("an endpoint without workers: %v", err)
	}
}

// TestPickerFollowsThePolicy: an endpoint is there as long as the policy names it, and its workers once Envoy has them.
func TestPickerFollowsThePolicy(t *testing.T) {
	f := fleet.New()
	current := naming(t, "small")
	p := New(Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()})
	if _, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Ready}); err != nil {
		t.Fatal(err)
	}
	req, body := chat(t, "x")
	for _, c := range []struct {
		what   string
		change func()
		served bool
	}{
		{"not named", func() { acknowledged(f, "small") }, false},
		{"named, unknown to Envoy", func() { name(t, current, "small", "large") }, false},
		{"known to Envoy", func() { acknowledged(f, "small", "large") }, true},
		{"a new policy", func() { name(t, current, "large") }, true},
		{"not named again", func() { name(t, current, "small") }, false},
	} {
		c.change()
		p.follow()
		choice, err := p.Pick(t.Context(), time.Now(), "large", req, body)
		if (err == nil) != c.served {
			t.Errorf("%s: %v, %v", c.what, choice.Addrs, err)
		}
		if err == nil {
			choice.Booking.Release()
		}
	}
	if len(p.routers) != 1 || p.routers["small"] == nil {
		t.Errorf("routers of %v, want one of small", p.routers)
	}
}

// TestRunWakesOnPolicyAndFleet: neither is polled.
func TestRunWakesOnPolicyAndFleet(t *testing.T) {
	f := fleet.New()
	current := naming(t, "small")
	p := New(Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	until := func(what string, fact func() bool) {
		t.Helper()
		for limit := time.Now().Add(10 * time.Second); !fact(); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("never %s", what)
			}
		}
	}
	if _, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", State: fleet.Ready}); err != nil {
		t.Fatal(err)
	}
	acknowledged(f, "large") // as if Envoy had been told earlier: only the policy is missing
	name(t, current, "large")
	req, body := chat(t, "x")
	until("picked", func() bool {
		c, err := p.Pick(t.Context(), time.Now(), "large", req, body)
		if err == nil {
			c.Booking.Release()
		}
		return err == nil
	})
}

// TestSpan: a pick is told of within the span of who asks, and costs nothing more where there is no tracing.
func TestSpan(t *testing.T) {
	p, f := pool(t, "10.0.0.1:1")
	kept := tracetest.NewSpanRecorder()
	p.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(kept)).Tracer("")
	ctx, parent := p.Tracer.Start(t.Context(), "admission")
	req, body := chat(t, "x")
	c, err := p.Pick(ctx, time.Now(), "large", req, body)
	if err != nil {
		t.Fatal(err)
	}
	c.Booking.Release()
	f.Update("w0", fleet.Draining)
	p.follow()
	if _, err := p.Pick(ctx, time.Now(), "large", req, body); err == nil {
		t.Fatal("a draining worker was picked")
	}
	spans := kept.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, want := range []codes.Code{codes.Unset, codes.Error} {
		if s := spans[i]; s.Name() != "pick" || s.Parent().SpanID() != parent.SpanContext().SpanID() || s.Status().Code != want {
			t.Errorf("span %v, status %v", s, s.Status())
		}
	}
	if got := spans[0].Attributes(); !slices.Contains(got, attribute.String("spokegate.worker.address", "10.0.0.1:1")) {
		t.Errorf("attributes %v", got)
	}
}

// TestEngineRestartIsForgotten: a new run of the engine behind the same address holds nothing.
func TestEngineRestartIsForgotten(t *testing.T) {
	f := fleet.New()
	p := New(Config{Fleet: f, Policy: naming(t, "large"), Registerer: prometheus.NewRegistry()})
	req, body := chat(t, strings.Repeat("words ", 500))
	overlap := func() int {
		c, err := p.Pick(t.Context(), time.Now(), "large", req, body)
		if err != nil {
			t.Fatal(err)
		}
		c.Booking.Release()
		return c.Overlap
	}
	run := func(epoch string) (leave func()) {
		leave, err := f.Join(fleet.Worker{Name: "w", Endpoint: "large", Addr: "10.0.0.1:1", Epoch: epoch, State: fleet.Ready})
		if err != nil {
			t.Fatal(err)
		}
		acknowledged(f, "large")
		p.follow()
		return leave
	}
	leave := run("1")
	if n := overlap(); n != 0 {
		t.Fatalf("overlap %d on an empty worker", n)
	}
	if n := overlap(); n == 0 {
		t.Fatal("what was just sent is not remembered")
	}
	leave()
	run("2")
	if n := overlap(); n != 0 {
		t.Errorf("overlap %d after the engine began anew", n)
	}
}

func server(p *Picker) *Server {
	return &Server{Picker: p, Endpoint: "large", BodyLimit: 1 << 20, Now: time.Now}
}

func reqHeaders(end bool, md *corev3.Metadata) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{MetadataContext: md, Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		EndOfStream: end, Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":path", RawValue: []byte("/v1/chat/completions")}, {Key: "x-request-id", RawValue: []byte("r-1")}}}}}}
}

func reqBody(b []byte, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: b, EndOfStream: end}}}
}

func reqTrailers() *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
}

// script describes answers in one line each, for comparison.
func script(rs []*extprocv3.ProcessingResponse) string {
	var b strings.Builder
	for _, r := range rs {
		switch x := r.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_RequestHeaders:
			h := x.RequestHeaders.GetResponse()
			header := string(h.GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue())
			md := r.GetDynamicMetadata().GetFields()[envoy.LBNamespace].GetStructValue().GetFields()[envoy.DestinationKey].GetStringValue()
			fmt.Fprintf(&b, "headers %s metadata %s clear %v\n", header, md, h.GetClearRouteCache())
		case *extprocv3.ProcessingResponse_RequestBody:
			s := x.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			fmt.Fprintf(&b, "body %d end %v\n", len(s.GetBody()), s.GetEndOfStream())
		case *extprocv3.ProcessingResponse_RequestTrailers:
			b.WriteString("trailers\n")
		case *extprocv3.ProcessingResponse_ImmediateResponse:
			fmt.Fprintf(&b, "immediate %d %s\n", x.ImmediateResponse.GetStatus().GetCode(), x.ImmediateResponse.GetDetails())
		case *extprocv3.ProcessingResponse_ResponseHeaders:
			b.WriteString("response headers\n")
		case *extprocv3.ProcessingResponse_ResponseBody:
			s := x.ResponseBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			fmt.Fprintf(&b, "response body %d end %v\n", len(s.GetBody()), s.GetEndOfStream())
		case *extprocv3.ProcessingResponse_ResponseTrailers:
			b.WriteString("response trailers\n")
		}
	}
	return b.String()
}

// TestEveryPhaseIsAnsweredOnce: in full duplex an unanswered phase hangs the request, and a doubled one corrupts it.
func TestEveryPhaseIsAnsweredOnce(t *testing.T) {
	named := "headers 10.0.0.1:1 metadata 10.0.0.1:1 clear true\n"
	big := bytes.Repeat([]byte("x"), 150_000)
	for name, c := range map[string]struct {
		msgs []*extprocv3.ProcessingRequest
		want string
	}{
		"headers alone":           {[]*extprocv3.ProcessingRequest{reqHeaders(true, nil)}, named},
		"one chunk":               {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody([]byte("{}"), true)}, named + "body 2 end true\n"},
		"chunks and an empty end": {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody([]byte("{"), false), reqBody([]byte("}"), false), reqBody(nil, true)}, named + "body 2 end true\n"},
		"an empty body":           {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody(nil, true)}, named + "body 0 end true\n"},
		"a second end of stream":  {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody([]byte("{}"), true), reqBody(nil, true)}, named + "body 2 end true\n"},
		"trailers":                {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody([]byte("{}"), false), reqTrailers()}, named + "body 2 end false\ntrailers\n"},
		"trailers without body":   {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqTrailers()}, named + "trailers\n"},
		"a large body":            {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody(big, true)}, named + "body 62000 end false\nbody 62000 end false\nbody 26000 end true\n"},
		"over the limit":          {[]*extprocv3.ProcessingRequest{reqHeaders(false, nil), reqBody(make([]byte, 1<<20), false), reqBody([]byte("x"), false)}, "immediate 413 picker_body_too_large\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := pool(t, "10.0.0.1:1")
			st := stream{server: server(p), traced: t.Context()}
			var out []*extprocv3.ProcessingResponse
			for _, m := range c.msgs {
				out = append(out, st.take(m)...)
			}
			if got := script(out); got != c.want {
				t.Errorf("answers\n%swant\n%s", got, c.want)
			}
			st.end()
			if n := load(p); n != 0 {
				t.Errorf("%d bookings are left", n)
			}
		})
	}
}

func TestTrailersAreRefusedWhereEnvoyWouldDoubleTheBody(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	st := stream{server: server(p), traced: t.Context()}
	st.server.RefuseTrailers = true
	defer st.end()
	st.take(reqHeaders(false, nil))
	st.take(reqBody([]byte("{}"), false))
	if got := script(st.take(reqTrailers())); got != "immediate 400 picker_invalid_body\n" {
		t.Errorf("answers %s", got)
	}
	if n := load(p); n != 0 {
		t.Errorf("%d bookings", n)
	}
}

func TestResponsePhasesPass(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	st := stream{server: server(p), traced: t.Context()}
	st.take(reqHeaders(true, nil))
	served := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.LBNamespace: {Fields: map[string]*structpb.Value{
		envoy.ServedKey: structpb.NewStringValue("10.0.0.2:1")}}}}
	var out []*extprocv3.ProcessingResponse
	for _, m := range []*extprocv3.ProcessingRequest{
		{MetadataContext: served, Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte("abc")}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}},
	} {
		out = append(out, st.take(m)...)
	}
	if got, want := script(out), "response headers\nresponse body 3 end false\nresponse trailers\n"; got != want {
		t.Errorf("answers %s", got)
	}
	for _, w := range p.routers["large"].Load() {
		if (w.Requests == 1) != (w.Addr == "10.0.0.2:1") {
			t.Errorf("after a retry: %+v", w)
		}
	}
	st.end()
	if n := load(p); n != 0 {
		t.Errorf("%d bookings are left", n)
	}
}

func TestSubset(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1", "[::1]:1")
	list := func(vs ...string) *structpb.Value {
		l := &structpb.ListValue{}
		for _, v := range vs {
			l.Values = append(l.Values, structpb.NewStringValue(v))
		}
		return structpb.NewListValue(l)
	}
	for name, c := range map[string]struct {
		hint *structpb.Value
		want string
	}{
		"a list":                {list("10.0.0.2:1"), "headers 10.0.0.2:1 metadata 10.0.0.2:1 clear true\n"},
		"a string":              {structpb.NewStringValue("10.0.0.9:1, 10.0.0.2:1"), "headers 10.0.0.2:1 metadata 10.0.0.2:1 clear true\n"},
		"without port":          {list("10.0.0.1"), "headers 10.0.0.1:1 metadata 10.0.0.1:1 clear true\n"},
		"IPv6":                  {list("[::1]:1"), "headers [::1]:1 metadata [::1]:1 clear true\n"},
		"another port":          {list("10.0.0.1:2"), "immediate 503 picker_overloaded\n"},
		"empty list":            {list(), "immediate 503 picker_overloaded\n"},
		"empty string":          {structpb.NewStringValue(""), "immediate 503 picker_overloaded\n"},
		"neither list nor text": {structpb.NewNumberValue(1), "immediate 503 picker_overloaded\n"},
	} {
		t.Run(name, func(t *testing.T) {
			md := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.SubsetNamespace: {Fields: map[string]*structpb.Value{subsetKey: c.hint}}}}
			st := stream{server: server(p), traced: t.Context()}
			defer st.end()
			if got := script(st.take(reqHeaders(true, md))); got != c.want {
				t.Errorf("answers %swant %s", got, c.want)
			}
		})
	}
}

// flights is a door's table with one open flight.
type flights struct{ booked flight.Booking }

func (f *flights) Book(id string, b flight.Booking) bool {
	if id != "r-1" {
		return false
	}
	f.booked = b
	return true
}

// TestPromptIsTheSameInEveryEncoding, and what is none of ours is searched by as it is.
func TestPromptIsTheSameInEveryEncoding(t *testing.T) {
	_, plain := chat(t, "hello")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain)
	_ = w.Close()
	p, _ := pool(t)
	text := func(encoding string, body []byte) string {
		st := stream{server: &Server{Picker: p, BodyLimit: 1 << 10}, headers: map[string]string{":path": "/v1/chat/completions", "content-encoding": encoding}, body: body}
		return string(st.ask(new(rendered)).Prompt)
	}
	want := text("", plain)
	if want == string(plain) || text("gzip", zipped.Bytes()) != want {
		t.Errorf("plain is %q, gzip %q", want, text("gzip", zipped.Bytes()))
	}
	for encoding, body := range map[string]string{"gzip": "none", "br": zipped.String(), "": "none"} {
		if got := text(encoding, []byte(body)); got != body {
			t.Errorf("%q in %q is %q", body, encoding, got)
		}
	}
}

// TestBookingEndsWithItsOwner: with its flight where there is one, with its stream otherwise; over real gRPC, cancelled.
func TestBookingEndsWithItsOwner(t *testing.T) {
	for name, f := range map[string]*flights{"our own door": {}, "another gateway": nil} {
		t.Run(name, func(t *testing.T) {
			p, _ := pool(t, "10.0.0.1:1")
			s := server(p)
			if f != nil {
				s.Flights = f
			}
			lis := bufconn.Listen(1 << 20)
			g := grpc.NewServer()
			extprocv3.RegisterExternalProcessorServer(g, s)
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Serve(lis) })
			conn, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			rpc, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := rpc.Send(reqHeaders(true, nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := rpc.Recv(); err != nil {
				t.Fatal(err)
			}
			if n := load(p); n != 1 {
				t.Errorf("%d bookings while the request runs", n)
			}
			cancel()
			g.GracefulStop() // waits for the handler
			wg.Wait()
			_ = conn.Close()
			if f != nil {
				if n := load(p); n != 1 {
					t.Errorf("%d bookings after the stream; the flight goes on", n)
				}
				f.booked.Release()
			}
			if n := load(p); n != 0 {
				t.Errorf("%d bookings are left", n)
			}
		})
	}
}
