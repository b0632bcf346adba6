package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestEnvoyMetrics: a door's pages pass on what Envoy counts, and nothing else of its admin page.
func TestEnvoyMetrics(t *testing.T) {
	const text = "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // stands for Envoy
		if r.URL.Path != "/stats/prometheus" || r.URL.RawQuery != "" || r.Method != http.MethodGet {
			t.Errorf("Envoy is asked %s %s", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, text)
	}))
	defer admin.Close()
	ops := httptest.NewServer(newOps(prometheus.NewRegistry(), func() report { return report{} }, envoyMetrics(newEnvoyAdmin(strings.TrimPrefix(admin.URL, "http://"), envoyPatience))).Handler)
	defer ops.Close()
	get := func(path string) (int, string, string) {
		resp, err := http.Get(ops.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Content-Type"), string(body)
	}
	if code, kind, body := get("/envoy/metrics?filter=x"); code != 200 || kind != "text/plain; version=0.0.4" || body != text {
		t.Errorf("got %d, %s, %q", code, kind, body)
	}
	for _, path := range []string{"/envoy/", "/envoy/quitquitquit", "/envoy/metrics/../config_dump"} {
		if code, _, body := get(path); code != 404 {
			t.Errorf("%s: got %d, %q", path, code, body)
		}
	}
	admin.Close()
	if code, _, body := get("/envoy/metrics"); code != 502 || !strings.Contains(body, "does not tell") {
		t.Errorf("without Envoy: got %d, %q", code, body)
	}
}

// TestEnvoyMetricsElsewhere: the admin page may be at a Unix socket, or be none.
func TestEnvoyMetricsElsewhere(t *testing.T) {
	get := func(admin string) (int, string, bool) {
		ops := httptest.NewServer(newOps(prometheus.NewRegistry(), func() report { return report{} }, envoyMetrics(newEnvoyAdmin(admin, envoyPatience))).Handler)
		defer ops.Close()
		resp, err := http.Get(ops.URL + "/envoy/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Close
	}
	socket := filepath.Join(t.TempDir(), "admin.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	admin := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") })}
	go func() { _ = admin.Serve(lis) }()
	defer admin.Close()
	if code, body, closed := get(socket); code != 200 || body != "text" || !closed {
		t.Errorf("at a socket: %d, %q; the connection with its deadline ends: %v", code, body, closed)
	}
	if code, body, _ := get(""); code != 404 || !strings.Contains(body, "-admin is empty") {
		t.Errorf("without a page: %d, %q", code, body)
	}
}

// TestEnvoyIsNotOverrun: however many ask a door for Envoy's metrics, Envoy is asked by two at a time. Nor is it followed elsewhere.
func TestEnvoyIsNotOverrun(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // stands for an Envoy that is slow
		asked <- struct{}{}
		<-answer
		http.Redirect(w, r, "/quitquitquit", http.StatusFound)
	}))
	defer admin.Close()
	ops := httptest.NewServer(newOps(prometheus.NewRegistry(), func() report { return report{} }, envoyMetrics(newEnvoyAdmin(strings.TrimPrefix(admin.URL, "http://"), time.Minute))).Handler)
	defer ops.Close()
	get := func() int {
		resp, err := http.Get(ops.URL + "/envoy/metrics")
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	slow := make(chan int, envoyAtOnce)
	for range envoyAtOnce {
		go func() { slow <- get() }()
		<-asked
	}
	for range 10 {
		if code := get(); code != http.StatusServiceUnavailable {
			t.Errorf("got %d while others ask", code)
		}
	}
	close(answer)
	for range envoyAtOnce {
		if code := <-slow; code != http.StatusBadGateway {
			t.Errorf("a redirect is answered %d", code)
		}
	}
	if n := len(asked); n != 0 {
		t.Errorf("Envoy was asked %d times more", n)
	}
}
