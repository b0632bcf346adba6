//go:build kube

package kube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spokegate/spokegate/test/kube/rig"
)

// poolPicker is a picker as a process.
type poolPicker struct {
	*poolLab
	*process
	ops   string
	probe healthv1.HealthClient
	asks  extprocv3.ExternalProcessorClient
}

func freeAddress(t *testing.T) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

func (l *poolLab) picker(args ...string) *poolPicker {
	l.Helper()
	listen, health, ops := freeAddress(l.T), freeAddress(l.T), freeAddress(l.T)
	p := &poolPicker{poolLab: l, ops: ops}
	p.process = l.start("picker", append([]string{"epp", "-pool", "llama", "-kubeconfig", l.kubeconfig, "-listen", listen, "-health-listen", health, "-ops", ops,
		"-drain-delay", "0s"}, args...)...)
	dial := func(address string) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	p.probe, p.asks = healthv1.NewHealthClient(dial(health)), extprocv3.NewExternalProcessorClient(dial(listen))
	return p
}

func (p *poolPicker) serving() (bool, error) {
	r, err := p.probe.Check(p.Context(), &healthv1.HealthCheckRequest{Service: "readiness"}, grpc.WaitForReady(false))
	return r.GetStatus() == healthv1.HealthCheckResponse_SERVING, err
}

func (p *poolPicker) servingIs(want bool) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		if got, err := p.serving(); err != nil || got != want {
			return fmt.Errorf("serving: %v, %v; %s", got, err, p.page("/readyz"))
		}
		return nil
	})
}

// page is what operators get.
func (p *poolPicker) page(path string) string {
	r, err := http.Get("http://" + p.ops + path)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return string(text)
}

func (p *poolPicker) pageHas(path string, want ...string) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		text := p.page(path)
		for _, w := range want {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%s has no %q:\n%s", path, w, text)
			}
		}
		return nil
	})
}

// named asks as a gateway does, with headers alone, and gives all who are named; the status where nobody is.
func (p *poolPicker) named() string {
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	stream, err := p.asks.Process(ctx)
	if err != nil {
		return err.Error()
	}
	headers := &corev3.HeaderMap{}
	for k, v := range map[string]string{":method": "GET", ":path": "/v1/models", ":authority": "llama"} {
		headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(v)})
	}
	err = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers, EndOfStream: true}}})
	if err != nil {
		return err.Error()
	}
	r, err := stream.Recv()
	if err != nil {
		return err.Error()
	}
	if now := r.GetImmediateResponse(); now != nil {
		return now.GetStatus().GetCode().String()
	}
	for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			all := strings.Split(cmp.Or(string(h.GetHeader().GetRawValue()), h.GetHeader().GetValue()), ",")
			slices.Sort(all)
			return strings.Join(all, " ")
		}
	}
	return "an answer without a name"
}

// names waits until exactly these are named.
func (p *poolPicker) names(want ...string) {
	p.Helper()
	rig.Eventually(p.T, func() error {
		if got := p.named(); got != strings.Join(want, " ") {
			return fmt.Errorf("%s, want %s\n%s", got, want, p.page("/readyz"))
		}
		return nil
	})
}

const nobody = "ServiceUnavailable"
