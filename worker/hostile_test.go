package worker

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
)

// rawEngine answers each request with the bytes given, then closes, or resets, or hangs until the shim lets go.
func rawEngine(t *testing.T, answer string, reset, linger bool) string {
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
			if linger {
				_, _ = io.Copy(io.Discard, conn)
			}
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

// Whatever an engine does, the client gets a clear answer that ends properly, and there is one record.
func TestHostileEngine(t *testing.T) {
	for _, c := range hostileEngines() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShim(t, rawEngine(t, c.answer, c.reset, c.linger), nil)
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
			} else if c.body != "broken" && withoutNotes(body) != c.body {
				t.Errorf("body\n%.300q, expected\n%.300q", body, c.body)
			}
			for _, leaked := range []string{"Location", "Link", "X-A", "Upgrade", "Trailer", "X-T"} {
				if resp.Header.Get(leaked) != "" || resp.Trailer.Get(leaked) != "" {
					t.Errorf("the client got %s", leaked)
				}
			}
			r := s.journal.one(t, "a")
			if resp.Header.Get(noteHeader) == noteStream {
				note, _ := lastWhole(raw)
				if used, _ := openai.ReadNote(openai.Chat, note); fmt.Sprint(number(used.Usage.Completion)) != fmt.Sprint(c.completion) || used.UpstreamCut != (c.outcome == upstreamCut) {
					t.Errorf("the last note is %s", note)
				}
			}
			if r.Outcome != c.outcome || fmt.Sprint(number(r.CompletionTokens)) != fmt.Sprint(c.completion) || int(r.GetStatus()) != c.status {
				t.Errorf("record %v", r)
			}
			if got := r.GetResponseBytes(); c.body != "broken" && got != int64(len(body)) {
				t.Errorf("%d bytes recorded, the client got %d", got, len(body))
			}
		})
	}
}

// An engine that hangs in the middle of a token keeps nobody: the client leaves, and what it got is counted.
func TestEngineHangsInsideAnEvent(t *testing.T) {
	gone := make(chan struct{})
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n", "data: {\"choices\":[{\"del")
		<-r.Context().Done()
	}), nil)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp, err := s.client.Do(s.request(t, ctx, "a", "/v1/chat/completions", streamBody))
	if err != nil {
		t.Fatal(err)
	}
	readEvents(t, resp.Body, 1)
	leave()
	resp.Body.Close()
	wait(t, gone)
	if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.GetCompletionTokens() != 2 || r.GetPromptTokens() != 7 || r.CountedFrom != "engine" {
		t.Errorf("%v", r)
	}
}

// One that hangs before its answer is left as well, and there is a record of what it was asked.
func TestEngineNeverAnswers(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	s := newShim(t, server(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
		close(gone)
	}), nil)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	left := make(chan error, 1)
	q := s.request(t, ctx, "a", "/v1/chat/completions", streamBody)
	go func() {
		_, err := s.client.Do(q)
		left <- err
	}()
	wait(t, asked)
	leave()
	wait(t, gone)
	if err := wait(t, left); err == nil {
		t.Error("answered")
	}
	if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.CountedFrom != "none" || r.Status != nil || r.CompletionTokens != nil {
		t.Errorf("%v", r)
	}
}

// An engine that is not ready, or no more, gets nothing, whatever its port answers.
func TestEngineThatIsNotReady(t *testing.T) {
	s := newShim(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), nil)
	for i, state := range []workerv1.State{workerv1.State_STATE_STARTING, workerv1.State_STATE_FAILED} {
		reason := []string{"starting", "failed"}[i]
		s.engine.lives <- Life{State: state, Reason: "x", Description: Description{Epoch: "e2"}}
		eventually(t, "the worker says so", func() bool { return s.Status().State == reason })
		resp, body := s.do(t, s.request(t, context.Background(), reason, "/v1/chat/completions", streamBody))
		if resp.StatusCode != 503 || resp.Header.Get("X-Spokegate-Refused") != reason || resp.Header.Get("Retry-After") == "" || errorCode(t, body) != "unavailable" {
			t.Errorf("%s: %d %v %s", reason, resp.StatusCode, resp.Header, body)
		}
		if n := len(s.journal.of(reason)); n != 0 {
			t.Errorf("%s: %d records of what was never served", reason, n)
		}
	}
}

func TestCutEventInEachDialect(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/completions": `data: {"error":{`,
		"/v1/responses":   "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_cut\"",
		"/v1/messages":    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"",
	} {
		event := "data: {\"type\":\"x\"}\n\n"
		s := newShim(t, rawEngine(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+chunked(event), false, false), nil)
		_, body := s.do(t, s.request(t, context.Background(), "a", path, streamBody))
		if rest, ok := strings.CutPrefix(withoutNotes(body), event); !ok || !strings.HasPrefix(rest, want) || !strings.Contains(rest, `"code":"upstream_cut"`) {
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
