package scrape

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet"
)

// TestWhatEnginesSayIsHarmless: what a stranger sends in place of an answer is repeated to operators, on one short line.
func TestWhatEnginesSayIsHarmless(t *testing.T) {
	evil := "\x1b]0;pwned\x07\u009b31m\u202e" + strings.Repeat("x", 4000)
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n" + evil + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: " + evil + "\r\n\r\n", evil + "\r\n\r\n", "HTTP/1.1 " + evil + " OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + evil + "\r\n\r\n",
	} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := lis.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1000))
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}
		}()
		f := fleet.NewUnacknowledged()
		s := New(Config{Fleet: f, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
		s.unit = time.Millisecond
		w := fleet.Worker{Name: "w", Endpoint: "e", Addr: lis.Addr().String(), Engine: "vllm", State: fleet.Starting}
		if _, err := f.Join(w); err != nil {
			t.Fatal(err)
		}
		s.Watch(t.Context(), []Target{{Worker: w}})
		said := ""
		for end := time.Now().Add(patience); said == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
			said = f.View().Workers[0].Status().Reason
		}
		s.Watch(t.Context(), nil)
		_ = lis.Close()
		if said == "" || len(said) > 300 || strings.ContainsAny(said, "\x1b\x07\r\n\u009b\u202e") {
			t.Errorf("%d bytes: %.200q", len(said), said)
		}
	}
}
