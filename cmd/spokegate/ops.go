package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newRegistry holds a role's metrics, beside those of the Go runtime and the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// page is one more of the pages for operators.
type page struct {
	pattern string
	handler http.Handler
}

// How long who asks for a page may take: to send what it asks, to read the answer, and to ask again. A page is made in seconds, and
// none is a stream.
const (
	pageAsked = time.Minute
	pageRead  = 2 * time.Minute
	pageIdle  = 2 * time.Minute
)

// newOps serves what operators ask: /metrics, /healthz (the process answers), /readyz (it can serve requests, or why not), and
// more.
func newOps(reg *prometheus.Registry, ready func() report, more ...page) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok   the process answers; /readyz says whether it can serve")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready().write(w) })
	for _, p := range more {
		mux.Handle(p.pattern, p.handler)
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: pageAsked, WriteTimeout: pageRead, IdleTimeout: pageIdle}
}

// report says whether a role can serve, and in every case why, line by line. The zero value is not ready: nobody said so.
type report struct {
	asked, failed bool
	lines         []string
}

// say adds what decides.
func (r *report) say(ok bool, format string, args ...any) {
	mark := "ok  "
	if !ok {
		mark, r.failed = "FAIL", true
	}
	r.asked = true
	r.lines = append(r.lines, mark+" "+fmt.Sprintf(format, args...))
}

// note adds what somebody should look at, and what does not decide.
func (r *report) note(format string, args ...any) {
	r.lines = append(r.lines, "note "+fmt.Sprintf(format, args...))
}

func (r *report) ready() bool { return r.asked && !r.failed }

func (r report) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !r.ready() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, l := range r.lines {
		fmt.Fprintln(w, l)
	}
}
