package worker

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// rawEngine answers each request with the bytes given, then closes, or resets.
func rawEngine(t *testing.T, answer string, reset bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = readRequest(conn)
			_, _ = io.WriteString(conn, answer)
			if reset {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// readRequest reads up to the end of a small JSON body.
func readRequest(conn net.Conn) error {
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		head, body, ok := bytes.Cut(all, []byte("\r\n\r\n"))
		var length int
		if i := bytes.Index(head, []byte("Content-Length: ")); ok && i >= 0 {
			_, _ = fmt.Sscan(string(head[i+16:]), &length)
		}
		if err != nil || ok && len(body) >= length {
			return err
		}
	}
}

func chunked(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String()
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

// hostile is an engine's answer, and what must become of it.
type hostile struct {
	name, answer string
	reset        bool
	status       int
	body         string // exactly; or
	code         string
	outcome      string
	completion   any
}

func hostileEngines() []hostile {
	const (
		stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
		enc    = "Transfer-Encoding: chunked\r\n\r\n"
		object = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		event  = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
		whole  = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
		cut    = "data: {\"error\":{\"message\":\"The engine broke off; the answer is not whole.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_cut\"}}\n\n"
	)
	large := `{"data":"` + strings.Repeat("x", 2*maxWhole) + `"`
	return []hostile{
		{name: "nothing", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "reset at once", reset: true, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "not HTTP", answer: "SSH-2.0-x\r\n", status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "half an event", answer: stream + enc + chunked(event, "data: {\"choi"), status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "half an event, then a proper end", answer: stream + enc + chunked(event, "data: {\"choi", ""), status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "half of the first event", answer: stream + enc + chunked("data: {\"choi"), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "no events at all", answer: stream + enc + chunked(""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "reset mid-stream", answer: stream + enc + chunked(event), reset: true, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "cut after the end", answer: stream + enc + chunked(event, "data: [DONE]\n\n"), status: 200, body: event + "data: [DONE]\n\n", outcome: complete, completion: 1},
		{name: "no terminal event", answer: stream + enc + chunked(event, ""), status: 200, body: event, outcome: complete, completion: 1},
		{name: "no terminal event and no framing", answer: stream + "\r\n" + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "stream shorter than said", answer: stream + "Content-Length: 1000\r\n\r\n" + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "stream longer than said", answer: stream + "Content-Length: 55\r\n\r\n" + event + event, status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "bad chunk", answer: stream + enc + chunked(event) + "zz\r\n", status: 200, body: event + cut, outcome: upstreamCut, completion: 1},
		{name: "error event, then nothing", answer: stream + enc + chunked(event, "data: {\"error\":{\"message\":\"x\"}}\n\n"), status: 200, body: event + "data: {\"error\":{\"message\":\"x\"}}\n\n", outcome: upstreamError, completion: 1},
		{name: "large event cut", answer: stream + enc + chunked("data: "+strings.Repeat("x", maxEvent+10)), status: 200, body: "data: " + strings.Repeat("x", maxEvent+10) + "\n\n" + cut, outcome: upstreamCut},
		{name: "JSON shorter than said", answer: object + "Content-Length: 1000\r\n\r\n" + whole[:40], status: 503, code: "upstream_cut", outcome: upstreamCut, completion: nil},
		{name: "whole JSON, shorter than said", answer: object + "Content-Length: 1000\r\n\r\n" + whole, status: 200, body: whole, outcome: complete, completion: 3},
		{name: "JSON longer than said", answer: object + "Content-Length: 20\r\n\r\n" + whole, status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "JSON half", answer: object + enc + chunked(whole[:20], ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "JSON for a stream", answer: object + enc + chunked(whole, ""), status: 200, body: whole, outcome: complete, completion: 3},
		{name: "JSON without its type", answer: "HTTP/1.1 200 OK\r\n\r\n" + whole, status: 200, body: whole, outcome: complete, completion: 3},
		{name: "HTML", answer: "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<h1>hi</h1>", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "500 in HTML", answer: "HTTP/1.1 500 Oh\r\nContent-Type: text/html\r\n\r\n<h1>hi</h1>", status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "500 without a body", answer: "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", status: 500, code: "upstream_error", outcome: upstreamError},
		{name: "400 in JSON", answer: "HTTP/1.1 400 No\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"message\":\"long\",\"code\":400}}", status: 400, body: "{\"error\":{\"message\":\"long\",\"code\":400}}", outcome: upstreamError},
		{name: "401 of our own access", answer: "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n{}", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "redirect", answer: "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "gzip nobody asked for", answer: stream + "Content-Encoding: gzip\r\n" + enc + chunked(zipped(event+"data: [DONE]\n\n"), ""), status: 200, body: event + "data: [DONE]\n\n", outcome: complete, completion: 1},
		{name: "gzip cut", answer: object + "Content-Encoding: gzip\r\n" + enc + chunked(zipped(whole)[:30], ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "gzip that is none", answer: object + "Content-Encoding: gzip\r\n" + enc + chunked(whole, ""), status: 503, code: "upstream_cut", outcome: upstreamCut},
		{name: "brotli nobody asked for", answer: object + "Content-Encoding: br\r\n" + enc + chunked("xxxx", ""), status: 502, code: "upstream_error", outcome: upstreamError},
		{name: "large JSON", answer: object + enc + chunked(large+"}", ""), status: 200, body: large + "}", outcome: complete},
		{name: "large JSON cut", answer: object + enc + chunked(large), status: 200, body: "broken", outcome: upstreamCut},
	}
}

// Whatever an engine does, the client gets a clear answer that ends properly, and there is one record.
func TestHostileEngine(t *testing.T) {
	for _, c := range hostileEngines() {
		t.Run(c.name, func(t *testing.T) {
			s := newShim(t, rawEngine(t, c.answer, c.reset), nil)
			resp, err := s.client.Do(s.request(t, context.Background(), "a", "/v1/chat/completions", streamBody))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			body := string(raw)
			if c.body == "broken" {
				if err == nil {
					t.Error("the client does not see that the body is not whole")
				}
			} else if err != nil {
				t.Errorf("the client's body does not end properly: %v", err)
			}
			if resp.StatusCode != c.status {
				t.Errorf("status %d, expected %d", resp.StatusCode, c.status)
			}
			if c.code != "" {
				if got := errorCode(t, body); got != c.code || resp.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%v %s", resp.Header, body)
				}
			} else if c.body != "broken" && body != c.body {
				t.Errorf("body\n%.300q, expected\n%.300q", body, c.body)
			}
			r := s.journal.one(t, "a")
			if r.Outcome != c.outcome || fmt.Sprint(number(r.CompletionTokens)) != fmt.Sprint(c.completion) || int(r.GetStatus()) != c.status {
				t.Errorf("record %v", r)
			}
			if got := r.GetResponseBytes(); c.body != "broken" && got != int64(len(body)) {
				t.Errorf("%d bytes recorded, the client got %d", got, len(body))
			}
		})
	}
}

func TestCutEventInEachDialect(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/completions": `data: {"error":{`,
		"/v1/responses":   "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_cut\"",
		"/v1/messages":    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"",
	} {
		event := "data: {\"type\":\"x\"}\n\n"
		s := newShim(t, rawEngine(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+chunked(event), false), nil)
		_, body := s.do(t, s.request(t, context.Background(), "a", path, streamBody))
		if rest, ok := strings.CutPrefix(body, event); !ok || !strings.HasPrefix(rest, want) || !strings.Contains(rest, `"code":"upstream_cut"`) {
			t.Errorf("%s: %q", path, body)
		}
	}
}

func TestEngineThatCannotBeReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := newShim(t, "http://"+l.Addr().String(), nil)
	resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/chat/completions", chatBody))
	if resp.StatusCode != 503 || resp.Header.Get("X-Spokegate-Refused") != "engine_gone" || resp.Header.Get("Retry-After") == "" || errorCode(t, body) != "unavailable" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
	if n := len(s.journal.of("a")); n != 0 {
		t.Errorf("%d records of what was never served", n)
	}
}
