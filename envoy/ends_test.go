package envoy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/fleet"
)

// ends: however a request ends, the log says so, and the meter's stream ends.
func (r *rig) ends(t *testing.T) {
	first := func(w http.ResponseWriter) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
	}
	t.Run("the client leaves mid-stream", func(t *testing.T) {
		freed := make(chan struct{})
		r.workers["a"].answers(t, func(w http.ResponseWriter, q *http.Request) { first(w); <-q.Context().Done(); close(freed) })
		ctx, leave := context.WithCancel(t.Context())
		id := r.stream(t, ctx, "a", nil)
		leave()
		<-freed
		r.ended(t, id, "first", func(e *logEntry) bool { return e.CommonProperties.ResponseFlags.DownstreamConnectionTermination })
	})
	t.Run("the worker dies mid-stream", func(t *testing.T) {
		r.workers["a"].answers(t, func(w http.ResponseWriter, q *http.Request) { first(w); panic(http.ErrAbortHandler) })
		var err error
		id := r.stream(t, t.Context(), "a", func(body io.Reader) { _, err = io.ReadAll(body) })
		if err == nil {
			t.Error("the client was told that this was all")
		}
		r.ended(t, id, "first", func(e *logEntry) bool {
			f := e.CommonProperties.ResponseFlags // which of them depends on how the response was framed
			return f.UpstreamConnectionTermination || f.UpstreamProtocolError
		})
	})
	t.Run("the client leaves before the first byte", func(t *testing.T) {
		asked, freed := make(chan string, 1), make(chan struct{})
		r.workers["a"].answers(t, func(w http.ResponseWriter, q *http.Request) {
			asked <- q.Header.Get(RequestIDHeader)
			<-q.Context().Done()
			close(freed)
		})
		ctx, leave := context.WithCancel(t.Context())
		var id string
		r.leaves(t, ctx, "", func() { id = <-asked; leave() })
		<-freed
		e := r.logged(t, id)
		if c := e.CommonProperties; !c.ResponseFlags.DownstreamConnectionTermination || served(c.Metadata.FilterMetadata) != r.workers["a"].addr ||
			e.Response.GetResponseCode().GetValue() != 0 {
			t.Errorf("logged %v", e)
		}
		r.notMetered(t, id)
	})
	t.Run("the client leaves during admission", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		r.leaves(t, ctx, CheckFull, func() {
			r.eventually("asked", func() bool { return r.hanging() != "" })
			leave()
		})
		if e := r.logged(t, r.hanging()); !e.CommonProperties.ResponseFlags.DownstreamConnectionTermination {
			t.Errorf("logged %v", e)
		}
	})
}

// hanging is the id of a request at which ext_authz hangs.
func (r *rig) hanging() string {
	n := r.services.authz.checks
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, checks := range n.seen {
		if checks[0].headers["x-test-hang"] != "" {
			return id
		}
	}
	return ""
}

// leaves sends a request that its context ends, while meanwhile runs.
func (r *rig) leaves(t *testing.T, ctx context.Context, hang string, meanwhile func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); meanwhile() }()
	req := r.chat(t, ctx, "a")
	req.Header.Set("x-test-hang", hang)
	if res, err := r.client.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("answered with %d", res.StatusCode)
	}
	<-done
}

func (r *rig) chat(t *testing.T, ctx context.Context, worker string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer good")
	req.Header.Set("x-test-pick", r.list(worker))
	return req
}

// stream reads the first piece of a response, then hands over the rest, and returns the request's id.
func (r *rig) stream(t *testing.T, ctx context.Context, worker string, rest func(io.Reader)) string {
	t.Helper()
	res, err := r.client.Do(r.chat(t, ctx, worker))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	b := make([]byte, len("first"))
	if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "first" {
		t.Fatalf("read %q, %v", b, err)
	}
	if rest != nil {
		rest(res.Body)
	}
	return res.Header.Get(RequestIDHeader)
}

// ended checks what log and meter say of a request that was cut.
func (r *rig) ended(t *testing.T, id, body string, flag func(*logEntry) bool) {
	t.Helper()
	if e := r.logged(t, id); !flag(e) || served(e.CommonProperties.Metadata.FilterMetadata) != r.workers["a"].addr {
		t.Errorf("logged %v", e)
	}
	if m := r.services.meter.ended.await(t, id, some[metered])[0]; m.end || string(m.body) != body {
		t.Errorf("metered %q, end %v", m.body, m.end)
	}
}

// notMetered says that the meter heard nothing of a request that is over, by the time it has heard all of a later one.
func (r *rig) notMetered(t *testing.T, ids ...string) {
	t.Helper()
	later := r.post(t, r.list("b"))
	r.services.meter.ended.await(t, later.id, some[metered])
	for _, id := range ids {
		if got, _ := r.services.meter.ended.get(id); len(got) > 0 {
			t.Errorf("metered %+v", got)
		}
	}
}

// followsFleet: workers can be picked when Envoy has them, and a stream outlives its worker's place in the fleet.
func (r *rig) followsFleet(t *testing.T) {
	leave := r.addWorker("new", "large")
	defer func() { leave(); delete(r.workers, "new") }()
	r.pickable("new", true)
	r.post(t, r.list("new")).served(t, "new")

	more := make(chan struct{})
	r.workers["new"].answers(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, ", then the rest")
	})
	var rest []byte
	r.stream(t, t.Context(), "new", func(body io.Reader) {
		r.fleet.Update("new", fleet.Draining)
		r.pickable("new", false)
		r.workers["new"].answers(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served by new") })
		r.post(t, r.list("new")).served(t, "new") // picked before the door heard
		r.fleet.Update("new", fleet.Stopped)
		r.eventually("taken from Envoy", func() bool { return !strings.Contains(r.admin("/clusters"), r.workers["new"].addr) })
		r.post(t, r.list("new")).want(t, 503, "unavailable")
		close(more)
		rest, _ = io.ReadAll(body)
	})
	if string(rest) != ", then the rest" {
		t.Errorf("the stream went on with %q", rest)
	}
}

// pickable waits until the fleet says so of a worker.
func (r *rig) pickable(name string, want bool) {
	r.t.Helper()
	r.eventually("pickable", func() bool {
		for _, w := range r.fleet.Pickable("large") {
			if w.Name == name {
				return want
			}
		}
		return !want
	})
}
