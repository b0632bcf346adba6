package epp

import (
	"bytes"
	"compress/gzip"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spokegate/spokegate/flight"
)

// flights is a door's table with one open flight.
type flights struct{ booked flight.Booking }

func (f *flights) Book(id string, b flight.Booking) bool {
	if id != "r-1" {
		return false
	}
	f.booked = b
	return true
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

// TestSlowUploadsAreBoundedTogether, and room is given back by every end that a request can have.
func TestSlowUploadsAreBoundedTogether(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	s := server(p)
	s.HeldLimit = 1000
	open := func() *stream {
		st := &stream{server: s, traced: t.Context()}
		say(st, reqHeaders(false, nil))
		return st
	}
	held := func(want int64) {
		t.Helper()
		if n := s.held.Load(); n != want {
			t.Errorf("%d bytes are held, want %d", n, want)
		}
		if n := testutil.ToFloat64(p.metrics.reading); n != float64(want) {
			t.Errorf("told are %v, want %d", n, want)
		}
	}
	one, two, three := open(), open(), open()
	say(one, reqBody(make([]byte, 600), false))
	say(two, reqBody(make([]byte, 400), false))
	held(1000)
	if got := script(say(three, reqBody([]byte("x"), true))); got != "immediate 503 picker_overloaded\n" {
		t.Errorf("beyond the bound: %s", got)
	}
	if n := testutil.ToFloat64(p.metrics.refused.WithLabelValues("held")); n != 1 {
		t.Errorf("%v are told to be refused", n)
	}
	three.sent()
	three.end()
	held(1000)
	two.end() // the client left
	held(600)
	if out := say(one, reqBody(nil, true)); len(out) != 2 {
		t.Errorf("answers %s", script(out))
	}
	held(600) // the answers are not out yet
	one.sent()
	held(0)
	one.end()
	held(0)
}

// TestObserversGetNoPick: in observability mode nobody listens, so nothing may be booked.
func TestObserversGetNoPick(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1")
	req := reqHeaders(true, nil)
	req.ObservabilityMode = true
	rpc := &watched{ctx: t.Context(), req: req}
	if err := server(p).Process(rpc); err != nil || rpc.sent != 0 || load(p) != 0 {
		t.Errorf("%v, %d answers, %d booked", err, rpc.sent, load(p))
	}
}

// watched is a stream of one message, for ever.
type watched struct {
	extprocv3.ExternalProcessor_ProcessServer
	ctx  context.Context
	req  *extprocv3.ProcessingRequest
	sent int
}

func (w *watched) Context() context.Context                    { return w.ctx }
func (w *watched) Recv() (*extprocv3.ProcessingRequest, error) { return w.req, nil }
func (w *watched) Send(*extprocv3.ProcessingResponse) error    { w.sent++; return nil }

// TestServedMovesTheBooking, and the first byte of an answer moves its prompt to decode.
func TestServedMovesTheBooking(t *testing.T) {
	p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1")
	st := opened(t, p)
	_, body := chat(t, strings.Repeat("words ", 100))
	out := say(st, reqHeaders(false, nil), reqBody(body, true))
	first := string(out[0].GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue())
	other := strings.Split(first, ",")[1]
	say(st, servedBy(other, respHeaders(":status=200")))
	for _, decoding := range []bool{false, true} {
		if decoding {
			say(st, respBody([]byte("a"), false))
		}
		for _, w := range p.router("large").Load() {
			if is := w.Addr == other; (w.Requests == 1) != is || is && (w.DecodeBlocks > 0) != decoding || is && (w.PrefillBlocks == 0) != decoding {
				t.Errorf("first byte %v: %+v", decoding, w)
			}
		}
	}
	say(st, respBody(nil, true))
	if n := load(p); n != 0 {
		t.Errorf("%d booked after the end of the answer", n)
	}
}

// TestBodiesThatUnfoldToMuchWait: a few kilobytes may be 32 MB, and hundreds of them at one time all memory. Whoever leaves
// meanwhile is picked for as if nobody could read it.
func TestBodiesThatUnfoldToMuchWait(t *testing.T) {
	_, plain := chat(t, strings.Repeat("hello ", 1<<18))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain)
	_ = w.Close()
	p, _ := pool(t)
	s := server(p)
	s.BodyLimit = 32 << 20
	ask := func(ctx context.Context) ask {
		st := stream{server: s, traced: ctx, headers: map[string]string{":path": "/v1/chat/completions", "content-encoding": "gzip"}, body: zipped.Bytes()}
		return st.ask(new(rendered))
	}
	here, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10 { // each gives its place back
		if got := ask(here); len(got.Prompt) < len(plain)/2 {
			t.Fatalf("a prompt of %d bytes", len(got.Prompt))
		}
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	if got := ask(left); !bytes.Equal(got.Prompt, zipped.Bytes()) {
		t.Errorf("a prompt of %d bytes", len(got.Prompt))
	}
}
