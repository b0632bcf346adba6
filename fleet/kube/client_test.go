package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// server is not an API server: it answers as one with a fault would. The real one is in test/kube.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	pods   func(w http.ResponseWriter, r *http.Request)
	asked  []string // of pods
	tokens map[string]bool
}

func newServer(t *testing.T) *server {
	s := &server{tokens: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		s.mu.Lock()
		s.tokens[r.Header.Get("Authorization")] = true
		pods := s.pods
		if strings.HasSuffix(r.URL.Path, "/pods") {
			s.asked = append(s.asked, fmt.Sprintf("watch=%s all=%s from=%s %s", q.Get("watch"), q.Get("sendInitialEvents"), q.Get("resourceVersion"), q.Get("labelSelector")))
		}
		s.mu.Unlock()
		switch {
		case r.URL.Path == "/api/v1/namespaces/ns/pods" && q.Get("labelSelector") == "app=vllm,b=c":
			pods(w, r)
		case r.URL.Path != "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools" || q.Get("fieldSelector") != "metadata.name=large":
			refuse(w, 404, "NotFound")
		case q.Get("sendInitialEvents") != "":
			refuse(w, 422, "Invalid") // an older one
		case q.Get("watch") != "":
			hold(w, r)
		default:
			_, _ = fmt.Fprintf(w, `{"kind": "InferencePoolList", "apiVersion": "inference.networking.k8s.io/v1", "metadata": {"resourceVersion": "7", "new": 1}, "items": [%s]}`, large)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d, "message": "it is %[1]s"}`, reason, code)
}

// hold is a watch in which nothing happens.
func hold(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// event is one of a watch.
func event(w http.ResponseWriter, kind, object string) {
	_, _ = fmt.Fprintf(w, `{"type": %q, "object": %s}`, kind, object)
	w.(http.Flusher).Flush()
}

func typed(pod string) string { return `{"kind": "Pod", "apiVersion": "v1", ` + pod[1:] }

func list(w http.ResponseWriter, version string, pods ...string) {
	_, _ = fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": %q}, "items": [%s]}`, version, strings.Join(pods, ","))
}

// follow runs a source that asks the server, with a token of a file.
func (s *server) follow(t *testing.T) (*Source, *fleet.Fleet) {
	t.Helper()
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "config")
	text, _ := json.Marshal(map[string]any{"kind": "Config", "apiVersion": "v1", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL, "insecure-skip-tls-verify": true}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"tokenFile": token}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u", "namespace": "ns"}}}})
	for path, text := range map[string]string{token: "secret\n", config: string(text)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cfg, namespace, err := configOf(config); err != nil || namespace != "ns" || cfg.BearerTokenFile != token {
		t.Fatalf("a token that is rotated would not be read again: %+v, %v", cfg, err)
	}
	client, err := NewClient(config, "spokegate/test")
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.NewUnacknowledged()
	src := New(&Source{Client: client, Namespace: client.Namespace, Pool: "large", Endpoint: "large", Log: slog.New(slog.DiscardHandler),
		Keeper: roster.Keeper{Fleet: f, Watch: func(context.Context, []scrape.Target) {}}})
	src.pause = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = src.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if n := len(f.View().Workers); n > 0 {
			t.Errorf("%d workers stay", n)
		}
	})
	return src, f
}

func until(t *testing.T, fact func() string, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = fact(); strings.Contains(got, want) {
			return
		}
	}
	t.Fatalf("%q, want %q", got, want)
}

func names(f *fleet.Fleet) func() string {
	return func() string {
		out := "workers:"
		for _, w := range f.View().Workers {
			out += " " + w.Name
		}
		return out + "."
	}
}

// TestFaults: a watch that has expired, in both ways in which that is said; one that breaks off in the middle of an event; objects
// that are none; a server that fails and comes back. What was known stays all the while.
func TestFaults(t *testing.T) {
	s := newServer(t)
	a, b, c := ready("a", "10.0.0.1", "", ""), ready("b", "10.0.0.2", "", ""), ready("c", "10.0.0.3", "", "")
	step := 0
	next := make(chan struct{})
	s.pods = func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		s.mu.Lock()
		step++
		n := step
		s.mu.Unlock()
		switch {
		case q.Get("sendInitialEvents") != "":
			refuse(w, 422, "Invalid")
		case q.Get("watch") == "" && n < 4:
			list(w, "1", a)
		case n < 4: // the first watch
			event(w, "ADDED", typed(b))
			event(w, "BOOKMARK", `{"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}}`)
			<-next
			event(w, "ERROR", `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}`)
		case q.Get("watch") == "" && n < 8:
			list(w, "9", a, c)
		case n < 8:
			_, _ = w.Write([]byte(`{"type": "MODIFIED", "obj`))
		case n < 10:
			refuse(w, 410, "Expired")
		case n < 12:
			refuse(w, 503, "ServiceUnavailable")
		case q.Get("watch") == "":
			list(w, "20", c)
		default:
			hold(w, r)
		}
	}
	src, f := s.follow(t)
	until(t, names(f), "workers: a b.")
	next <- struct{}{}
	until(t, names(f), "workers: a c.")
	until(t, names(f), "workers: c.")
	until(t, func() string { return fmt.Sprintf("%+v", src.Status().Away == "") }, "true")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) != 1 || !s.tokens["Bearer secret"] {
		t.Errorf("%v", s.tokens)
	}
	if !strings.HasPrefix(s.asked[0], "watch=true all=true") {
		t.Errorf("%q", s.asked)
	}
}

// TestRefused: why the API server does not let it see is told, and that it does later.
func TestRefused(t *testing.T) {
	s := newServer(t)
	var may bool
	s.pods = func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		yes := may
		s.mu.Unlock()
		switch q := r.URL.Query(); {
		case !yes:
			refuse(w, 403, "Forbidden")
		case q.Get("sendInitialEvents") != "":
			event(w, "ADDED", typed(ready("a", "10.0.0.1", "", "")))
			event(w, "BOOKMARK", `{"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}}`)
			hold(w, r)
		case q.Get("watch") == "":
			list(w, "5", ready("a", "10.0.0.1", "", ""))
		default:
			hold(w, r)
		}
	}
	src, f := s.follow(t)
	until(t, func() string { return src.Status().Away }, "it is Forbidden")
	if st := src.Status(); st.Known || st.Gone != "" || !strings.HasPrefix(st.Away, "pods, since ") {
		t.Errorf("%+v", st)
	}
	s.mu.Lock()
	may = true
	s.mu.Unlock()
	until(t, names(f), "workers: a.")
	until(t, func() string { return fmt.Sprintf("%+v", src.Status().Away == "" && src.Status().Known) }, "true")
}
