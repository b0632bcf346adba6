package scrape

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet"
)

// BenchmarkLook is one look at a worker with vLLM's own page, client and server in one process.
func BenchmarkLook(b *testing.B) {
	page, err := os.ReadFile("../../enginemetrics/testdata/vllm-metrics.txt")
	if err != nil {
		b.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = w.Write(page)
		}
	})}
	go func() { _ = server.Serve(lis) }()
	defer func() { _ = server.Close() }()
	s := New(Config{Fleet: fleet.New(), Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	t := Target{Worker: fleet.Worker{Name: "a", Addr: lis.Addr().String(), Engine: "vllm"}}
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if f := s.look(context.Background(), t); !f.known {
			b.Fatalf("%+v", f)
		}
	}
	b.ReportMetric(float64(looksOfIdle(100, time.Minute))/60*b.Elapsed().Seconds()/float64(b.N), "cores/100-idle")
}
