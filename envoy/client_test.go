package envoy

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spokegate/spokegate/fleet"
)

// worker is a stub of a shim.
type worker struct {
	name, addr string
	got        *notes[*http.Request] // what arrived, body read
	mu         sync.Mutex
	answer     http.HandlerFunc
}

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	w.got.add(r.Header.Get(RequestIDHeader), r)
	w.mu.Lock()
	answer := w.answer
	w.mu.Unlock()
	answer(rw, r)
}

// answers sets what the worker does until the test ends.
func (w *worker) answers(t *testing.T, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.answer
	w.answer = h
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answer = before
	})
}

// hangs until the client leaves.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// addWorker starts a worker and waits until it can be picked, if Envoy is there to say so.
func (r *rig) addWorker(name, endpoint string) (leave func()) {
	return r.joinWorker(fleet.Worker{Name: name, Endpoint: endpoint}, nil)
}

// joinWorker is addWorker for one that speaks TLS.
func (r *rig) joinWorker(as fleet.Worker, encrypted *tls.Config) (leave func()) {
	name := as.Name
	w := &worker{name: name, got: newNotes[*http.Request]()}
	w.answer = func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("x-spokegate-secret", "from the worker")
		fmt.Fprintf(rw, "served by %s", name)
	}
	s := httptest.NewUnstartedServer(w)
	if s.TLS = encrypted; encrypted == nil {
		s.Start()
	} else {
		s.Config.ErrorLog = log.New(r.log, "worker "+name+": ", 0)
		s.StartTLS()
	}
	r.t.Cleanup(s.Close)
	w.addr = s.Listener.Addr().String()
	r.workers[name] = w
	as.Addr, as.State = w.addr, fleet.Ready
	leave, err := r.fleet.Join(as)
	if err != nil {
		r.t.Fatal(err)
	}
	return leave
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	id     string // Envoy's request id
}

// do sends a request with a good key; header values "" delete.
func (r *rig) do(t *testing.T, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer good")
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return r.send(t, r.client, req)
}

func (r *rig) send(t *testing.T, c *http.Client, req *http.Request) answer {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b), res.Header.Get(RequestIDHeader)}
}

// post sends a small chat request to the named workers, best first.
func (r *rig) post(t *testing.T, pick string, headers ...string) answer {
	t.Helper()
	if pick != "" {
		headers = append(headers, "x-test-pick", pick)
	}
	return r.do(t, "POST", "/v1/chat/completions", strings.NewReader(`{"model":"m"}`), headers...)
}

// list joins the addresses of workers.
func (r *rig) list(names ...string) string {
	var addrs []string
	for _, n := range names {
		addrs = append(addrs, r.workers[n].addr)
	}
	return strings.Join(addrs, ",")
}

func (a answer) want(t *testing.T, status int, code string) {
	t.Helper()
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	json.Unmarshal([]byte(a.body), &e)
	if a.status != status || e.Error.Code != code || e.Error.Message == "" && code != "invalid_api_key" {
		t.Fatalf("got %d %q, want %d with code %q", a.status, a.body, status, code)
	}
	if ct := a.header.Get("content-type"); ct != "application/json" {
		t.Fatalf("content-type %q of %s", ct, a.body)
	}
	if a.id == "" {
		t.Fatal("no x-request-id in the response")
	}
}

func (a answer) served(t *testing.T, by string) {
	t.Helper()
	if a.status != 200 || a.body != "served by "+by {
		t.Fatalf("got %d %q, want it served by %s", a.status, a.body, by)
	}
}
