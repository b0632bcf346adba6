package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// caseHeader names the script that the engine plays to a request: one of the few headers that reach an engine. Its value
// begins with casePrefix, so that what no test sent is noticed.
const (
	caseHeader = "user-agent"
	casePrefix = "case/"
)

// script is one answer of the engine.
type script struct {
	status int
	json   string   // or:
	chunks []string // text/event-stream, each flushed as it is given
	end    string   // "" (an orderly end), "client" (wait for the client to leave), "server" (close), "server_reset"
	linger time.Duration
	onlyAt string // path; "" any
}

// heard is one request that the engine received.
type heard struct {
	method, path string
	header       http.Header
	body         []byte
}

// engine is an OpenAI-compatible server that does as it is told.
type engine struct {
	server *httptest.Server
	models []string

	mu      sync.Mutex
	scripts map[string]script
	special map[string]http.HandlerFunc // by case, instead of a script
	heard   map[string][]heard          // by case
	gone    map[string]func()           // by case, called when its client is gone
	leftBy  map[string]<-chan struct{}
}

const plainAnswer = `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`

const anthropicAnswer = `{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":3}}`

// startEngine runs until close is called; it outlives the test that was the first to need it.
func startEngine(models ...string) *engine {
	e := &engine{models: models, scripts: map[string]script{}, special: map[string]http.HandlerFunc{}, heard: map[string][]heard{}, gone: map[string]func(){}, leftBy: map[string]<-chan struct{}{}}
	e.server = httptest.NewServer(e)
	return e
}

// plays sets what the engine answers to a case.
func (e *engine) plays(name string, s script) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.scripts[name] = s
	gone := make(chan struct{})
	e.gone[name], e.leftBy[name] = sync.OnceFunc(func() { close(gone) }), gone
}

// answers sets a handler for what no script can say.
func (e *engine) answers(name string, f http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.special[name] = f
}

// got is what was received for a case.
func (e *engine) got(name string) []heard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]heard(nil), e.heard[name]...)
}

// left is closed when the engine has seen that the client of a case is gone.
func (e *engine) left(name string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leftBy[name]
}

// ServeHTTP answers the shim's own questions by itself, and all else by script.
func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		e.describe(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name := r.Header.Get(caseHeader)
	e.mu.Lock()
	e.heard[name] = append(e.heard[name], heard{r.Method, r.URL.RequestURI(), r.Header.Clone(), body})
	s, gone, special := e.scripts[name], e.gone[name], e.special[name]
	e.mu.Unlock()
	if special != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		special(w, r)
		return
	}
	if s.onlyAt != "" && s.onlyAt != r.URL.Path {
		http.Error(w, "the script is for "+s.onlyAt, http.StatusNotFound)
		return
	}
	s.play(w, r)
	if r.Context().Err() != nil && gone != nil {
		gone()
	}
}

func (e *engine) describe(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		var data []map[string]any
		for _, m := range e.models {
			data = append(data, map[string]any{"id": m, "object": "model", "created": 0, "owned_by": "test"})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data})
	case "/health":
		w.WriteHeader(http.StatusOK)
	default:
		http.NotFound(w, r)
	}
}

func (s script) play(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.end == "server":
		s.playAndClose(w)
	case s.chunks == nil:
		s.playJSON(w, r)
	default:
		s.playStream(w, r)
	}
}

func (s script) playJSON(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.json == "" && r.URL.Path == "/v1/messages":
		s.json = anthropicAnswer
	case s.json == "":
		s.json = plainAnswer
	}
	w.Header().Set("Content-Type", "application/json")
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	_, _ = io.WriteString(w, s.json)
}

func (s script) playStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	for _, c := range s.chunks {
		_, _ = io.WriteString(w, c)
		_ = rc.Flush()
	}
	switch s.end {
	case "server_reset":
		reset(w)
	case "client":
		if s.linger == 0 {
			s.linger = callPatience
		}
		select {
		case <-r.Context().Done():
		case <-time.After(s.linger):
		}
	}
}

// reset breaks the connection off, so that the other side sees no end of the body.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// playAndClose frames the body by the end of the connection.
func (s script) playAndClose(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
	for _, c := range s.chunks {
		_, _ = io.WriteString(conn, c)
	}
}

// silent fails if anything was sent to the engine outside a case.
func (e *engine) silent(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, all := range e.heard {
		if strings.HasPrefix(name, casePrefix) {
			continue
		}
		for _, h := range all {
			if h.header.Get("User-Agent") != "spokegate-probe" { // its shim's own
				t.Errorf("the engine received what no test sent: %+v", h)
			}
		}
	}
}
