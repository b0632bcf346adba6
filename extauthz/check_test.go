package extauthz

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/router"
)

// TestEnvoySendsWhatIsRead: a header that is read and not listed would never come, and one that is listed and not read costs.
func TestEnvoySendsWhatIsRead(t *testing.T) {
	var names []string
	for _, h := range read {
		names = append(names, h.name)
	}
	sent := append(slices.Clone(envoy.CheckHeaders), "authorization", envoy.ClientAddressHeader)
	slices.Sort(names)
	slices.Sort(sent)
	if !slices.Equal(names, sent) {
		t.Errorf("read: %v\nsent: %v", names, sent)
	}
}

// TestClientLeavesDuringACheck: Envoy closes the connection of its check, and what was opened for it is over.
func TestClientLeavesDuringACheck(t *testing.T) { both(t, testClientLeavesDuringACheck) }

func testClientLeavesDuringACheck(t *testing.T) {
	g := newGate(t)
	ctx, leave := context.WithCancel(t.Context())
	seen := make(chan struct{})
	g.Picker = waits(func(ctx context.Context) {
		leave()
		<-ctx.Done()
		close(seen)
	})
	if resp, err := g.ask(t, ctx); err == nil {
		t.Fatalf("answered %v", resp)
	}
	<-seen
	for deadline := time.Now().Add(2 * time.Minute); testutil.ToFloat64(g.metrics.decisions.WithLabelValues("abandoned")) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the answer is not abandoned")
		}
	}
	g.Flights.End("r-1", flight.Facts{Logged: &flight.Logged{ClientCut: true, At: time.Now()}})
	if g.Flights.Len() != 0 || len(g.limiter.InFlight()) != 0 {
		t.Errorf("%d flights, leases %v", g.Flights.Len(), g.limiter.InFlight())
	}
}

// waits is a picker that does something with its context before it names a worker.
type waits func(context.Context)

func (f waits) Pick(ctx context.Context, _ time.Time, _ string, _ router.Ask, _ *openai.Request, _ []byte) (router.Choice, error) {
	f(ctx)
	return router.Choice{Addrs: []string{"10.0.0.1:1"}}, nil
}

// closed is a connection that Envoy has closed.
type closed struct{ *httptest.ResponseRecorder }

func (closed) FlushError() error { return syscall.EPIPE }

// TestAnswerThatNobodyHears: the flight that it opened is over.
func TestAnswerThatNobodyHears(t *testing.T) {
	g := newGate(t)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(written(t.Context(), g.request("r-1", `{"model":"cheap"}`)))))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if got := recover(); got != http.ErrAbortHandler {
				t.Errorf("it ends with %v", got)
			}
		}()
		g.answerCheck(closed{httptest.NewRecorder()}, r)
	}()
	g.Flights.End("r-1", flight.Facts{Logged: &flight.Logged{ClientCut: true, At: time.Now()}})
	if g.Flights.Len() != 0 || len(g.limiter.InFlight()) != 0 || testutil.ToFloat64(g.metrics.decisions.WithLabelValues("abandoned")) != 1 {
		t.Errorf("%d flights, leases %v", g.Flights.Len(), g.limiter.InFlight())
	}
}

// TestNoAnswerIsNoYes: what no Envoy of ours writes, and what breaks, ends its connection; nothing but what was meant is a 200.
func TestNoAnswerIsNoYes(t *testing.T) { t.Run("http", testNoAnswerIsNoYes) }

func testNoAnswerIsNoYes(t *testing.T) {
	g := newGate(t)
	good := written(t.Context(), g.request("r-1", `{"model":"cheap"}`))
	if resp, _, err := g.send(t, t.Context(), good, "POST"); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	for name, text := range map[string]string{
		"another path": strings.Replace(good, "/?/v1", "/v1", 1),
		"chunks":       strings.Replace(strings.Replace(good, "content-length: 17", "transfer-encoding: chunked", 1), `{"model":"cheap"}`, "11\r\n{\"model\":\"cheap\"}\r\n0\r\n\r\n", 1),
		"too large":    strings.Replace(good, "content-length: 17", fmt.Sprint("content-length: ", g.BodyLimit+1), 1),
	} {
		if resp, body, err := g.send(t, t.Context(), text, "POST"); err == nil {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	for name, text := range map[string]string{"no HTTP": "hello\r\n\r\n", "host": strings.Replace(good, "host: ", "host: a@b", 1)} {
		if resp, body, err := g.send(t, t.Context(), text, "POST"); err != nil || resp.StatusCode != 400 || resp.Header.Get("Content-Type") == "application/json" {
			t.Errorf("%s: %v, %s, %v", name, resp, body, err)
		}
	}
	g.Picker = waits(func(context.Context) { panic("a fault of ours") })
	if resp, body, err := g.send(t, t.Context(), strings.Replace(good, "r-1", "r-2", 1), "POST"); err == nil {
		t.Errorf("a fault: %d %s", resp.StatusCode, body)
	}
	w := httptest.NewRecorder()
	if err := (answer{}).write(w); err != nil || w.Code != envoy.DeniedAs(503) {
		t.Errorf("the zero answer: %d, %v", w.Code, err)
	}
}

// FuzzBothWays: a check over HTTP is read as over gRPC.
func FuzzBothWays(f *testing.F) {
	f.Add("POST", "/v1/chat/completions?a=b", "door:80", "Bearer k", "application/json", "{}")
	f.Add("GET", "/%zz?/?", "", "Basic \xff", "", "")
	f.Add("x", "//", "[::1]", "", "a/b; c=\"d\"", "\x00")
	f.Fuzz(func(t *testing.T, method, target, host, authorization, other, body string) {
		req := (&gate{}).request("id", body)
		h := req.GetAttributes().GetRequest().GetHttp()
		h.Method, h.Path, h.Host = method, target, host
		h.Headers = map[string]string{"authorization": authorization, "content-length": strconv.Itoa(len(body))}
		for _, name := range envoy.CheckHeaders {
			h.Headers[name] = other
		}
		req.Attributes.Source = &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "192.0.2.7"}}}}
		message, err := proto.Marshal(req)
		if err != nil {
			return // Envoy sends no bytes that are not UTF-8
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(written(t.Context(), req))))
		if err != nil || r.Proto != "HTTP/1.1" {
			return
		}
		for _, v := range []string{authorization, other, host} {
			if !httpguts.ValidHeaderFieldValue(v) || strings.TrimSpace(v) != v {
				return
			}
		}
		if strings.ContainsAny(method+target, " \r\n") || target == "" {
			return
		}
		want, err := parse(message)
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Config: Config{BodyLimit: 1 << 30, Log: slog.New(slog.DiscardHandler)}}
		got, ok := s.readCheck(r)
		if !ok {
			t.Fatal("not read")
		}
		if got.address() != want.address() || want.address() == (netip.Addr{}) {
			t.Errorf("the client is at %v, want %v", got.address(), want.address())
		}
		got.source, got.clientAddress, want.source, want.clientAddress = "", "", "", ""
		want.body = nil
		if !same(got, want) {
			t.Errorf("\n%+v, over gRPC\n%+v", got, want)
		}
	})
}

// A host that names a user is refused before the body of a large request is read, and asked about over HTTP: that server would not
// read it.
func TestUserInHost(t *testing.T) {
	g := newGate(t)
	for _, host := range []string{"user@host", "@", "user:word@host:80"} {
		resp, err := g.ask(t, t.Context(), func(h *authv3.AttributeContext_HttpRequest) { h.Host = host })
		if err != nil {
			t.Fatal(err)
		}
		denial(t, resp, 400, "invalid_body")
	}
}
