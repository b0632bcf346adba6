package extauthz

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spokegate/spokegate/envoy"
)

// listen puts the gate's HTTP server on a socket.
func (g *gate) listen(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "spokegate") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	g.socket = filepath.Join(dir, "s")
	lis, err := net.Listen("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := g.HTTP()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.answerCheck(w, r) }) // of whichever server is the gate's then
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		os.RemoveAll(dir)
	})
}

// written is a check as the door's Envoy writes it.
func written(ctx context.Context, req *authv3.CheckRequest) string {
	a := req.GetAttributes()
	h, md := a.GetRequest().GetHttp(), metadata.MD{}
	if got, ok := metadata.FromIncomingContext(ctx); ok {
		md = got
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nhost: %s\r\ncontent-length: %d\r\nx-envoy-internal: true\r\n", h.GetMethod(), envoy.CheckPrefix, h.GetPath(), h.GetHost(), len(h.GetRawBody()))
	add := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	for _, name := range append(slices.Clone(envoy.CheckHeaders), "authorization") {
		add(name, h.GetHeaders()[name])
	}
	client := h.GetHeaders()[envoy.ClientAddressHeader]
	if client == "" {
		client = a.GetSource().GetAddress().GetSocketAddress().GetAddress()
	}
	add(envoy.ClientAddressHeader, client)
	add("traceparent", strings.Join(md.Get("traceparent"), ""))
	return b.String() + "\r\n" + string(h.GetRawBody())
}

// byHTTP asks over HTTP, and gives the answer as Envoy takes it.
func (g *gate) byHTTP(t *testing.T, ctx context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	t.Helper()
	resp, body, err := g.send(t, ctx, written(ctx, req), req.GetAttributes().GetRequest().GetHttp().GetMethod())
	if err != nil {
		return nil, err
	}
	return understood(t, resp, body), nil
}

// send writes bytes on a connection of their own, and reads one answer. Where ctx ends, the connection does.
func (g *gate) send(t *testing.T, ctx context.Context, text, method string) (*http.Response, string, error) {
	t.Helper()
	conn, err := net.Dial("unix", g.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// understood is what Envoy makes of an answer: what it is not told to take, it drops, and here fails the test.
func understood(t *testing.T, resp *http.Response, body string) *authv3.CheckResponse {
	t.Helper()
	resp.Header.Del("Content-Length")
	take := func(names ...string) (list []*corev3.HeaderValueOption) {
		for _, n := range names {
			for _, v := range resp.Header.Values(n) {
				list = append(list, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: n, Value: v}})
			}
			resp.Header.Del(n)
		}
		return list
	}
	defer func() {
		if len(resp.Header) > 0 {
			t.Errorf("an answer of %d has headers that Envoy drops: %v", resp.StatusCode, resp.Header)
		}
	}()
	if resp.StatusCode == http.StatusOK {
		out := &authv3.CheckResponse{Status: &rpcstatus.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			Headers: take(envoy.AdmittedHeaders...), ResponseHeadersToAdd: take(envoy.ToldHeaders...)}}}
		if to := take(envoy.DestinationKey); len(to) == 1 {
			out.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{envoy.DestinationKey: structpb.NewStringValue(to[0].GetHeader().GetValue())}}
		}
		return out
	}
	status := resp.StatusCode
	for _, meant := range []int{200, 503} {
		if envoy.DeniedAs(meant) == status {
			status = meant
		}
	}
	if status != resp.StatusCode == (resp.StatusCode < 460) || resp.StatusCode >= 500 {
		t.Errorf("denied with %d", resp.StatusCode)
	}
	return &authv3.CheckResponse{Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied)}, HttpResponse: &authv3.CheckResponse_DeniedResponse{
		DeniedResponse: &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode(status)}, Body: body,
			Headers: take(slices.Concat(envoy.DeniedHeaders, envoy.ToldHeaders)...)}}}
}
