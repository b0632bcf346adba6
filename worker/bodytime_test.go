package worker

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// A client that leaves while its body is on the way has used its context up: one record.
func TestClientLeavesInItsBody(t *testing.T) {
	s := newShim(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), nil)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nX-Spokegate-Context: "+s.context(t, "a")+"\r\n\r\n{")
	eventually(t, "running", func() bool { return s.states.count() == 1 })
	conn.Close()
	if r := s.journal.one(t, "a"); r.Outcome != "client_cut" || r.Status != nil {
		t.Errorf("%v", r)
	}
}

// A body that stalls is answered and frees its goroutine, also where it is refused before it is read.
func TestStalledBody(t *testing.T) {
	s := newShim(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	for name, c := range map[string]struct{ media, status string }{
		"in the body": {"application/json", "408"},
		"refused":     {"text/plain", "415"},
	} {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "+c.media+"\r\nContent-Length: 1000\r\nX-Spokegate-Context: "+s.context(t, name)+"\r\n\r\n{")
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) || !strings.Contains(string(answer), "X-Spokegate-Refused: ") {
			t.Errorf("%s: %v after %q", name, err, answer)
		}
		eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
		if got := s.journal.of(name); len(got) > 0 {
			t.Errorf("%s: nothing was served, and %v", name, got)
		}
	}
}

// deadlined is an answer that keeps the deadlines of its request's connection.
type deadlined struct {
	*httptest.ResponseRecorder
	read []time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, at)
	return nil
}

// A body has a deadline. A slow engine does not run into it: it is gone before the engine is asked.
func TestEngineSlowerThanABody(t *testing.T) {
	d, began := &deadlined{ResponseRecorder: httptest.NewRecorder()}, time.Now()
	asked := make(chan []time.Time, 1)
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- slices.Clone(d.read) // who sets them waits for this answer
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}), func(c *Config) { c.BodyTimeout = time.Hour })
	s.ServeHTTP(d, s.request(t, t.Context(), "a", "/v1/chat/completions", chatBody))
	if set := <-asked; len(set) != 2 || set[0].Sub(began) < time.Hour || !set[1].IsZero() {
		t.Errorf("begun at %v, deadlines %v", began, set)
	}
	if d.Code != http.StatusOK || s.journal.one(t, "a").Outcome != complete {
		t.Errorf("%d %s", d.Code, d.Body)
	}
}
