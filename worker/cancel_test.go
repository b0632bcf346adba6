package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRevokedMidStream(t *testing.T) {
	ended := make(chan string, 8)
	d := newRealDoor(t)
	s := d.join(t, endless(t, ended), nil)
	for path, want := range map[string]string{
		"/v1/chat/completions": "data: {\"error\":{\"message\":\"The request was ended: its API key was revoked; the answer is not whole.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_cut\"}}\n\n",
		"/v1/messages":         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"The request was ended: its API key was revoked; the answer is not whole.\",\"code\":\"upstream_cut\"}}\n\n",
		"/v1/responses":        "\"code\":\"upstream_cut\"}}\n\n",
	} {
		resp, err := s.client.Do(s.request(t, context.Background(), path, path, streamBody))
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		if line, err := in.ReadString('\n'); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %q %v", path, resp.StatusCode, line, err)
		}
		d.cancel(t, s, path, "revoked")
		rest, err := io.ReadAll(in)
		resp.Body.Close()
		if err != nil || !strings.HasSuffix(withoutNotes(string(rest)), want) || !strings.Contains(string(rest), "was revoked") {
			t.Errorf("%s ends with %q, %v", path, rest[max(0, len(rest)-300):], err)
		}
		if id := wait(t, ended); id != path {
			t.Errorf("the engine ended %s instead of %s", id, path)
		}
		r := s.journal.one(t, path)
		if r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{"revoked"}) || r.GetStatus() != 200 {
			t.Errorf("%s: %v", path, r)
		}
	}
	eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
}

// Before the first byte the client learns it by the status, and does not come again; for another reason it may.
func TestCutBeforeTheAnswer(t *testing.T) {
	ended := make(chan string, 8)
	d := newRealDoor(t)
	s := d.join(t, endless(t, ended), nil)
	for reason, want := range map[string]struct {
		status                 int
		code, message, anomaly string
	}{
		"revoked": {401, "invalid_api_key", "its API key was revoked", "revoked"},
		"quota":   {503, "upstream_cut", "quota", "quota"},
		"No Word": {503, "upstream_cut", "cancelled", "cancelled"},
	} {
		got := s.begin(t, s.request(t, context.Background(), reason, "/v1/chat/completions", streamBody, "Accept", "nothing"))
		d.cancel(t, s, reason, reason)
		resp := wait(t, got)
		if resp.StatusCode != want.status || errorCode(t, resp.body) != want.code || !strings.Contains(resp.body, want.message) || resp.Header.Get("X-Spokegate-Refused") != "" {
			t.Errorf("%s: %d %v %s", reason, resp.StatusCode, resp.Header, resp.body)
		}
		if r := s.journal.one(t, reason); r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{want.anomaly}) {
			t.Errorf("%s: %v", reason, r)
		}
		eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
	}
}

// A cut may overtake its request, which then never reaches the engine; a cut of somebody else's changes nothing.
func TestCutBeforeTheRequest(t *testing.T) {
	reg := prometheus.NewRegistry()
	d := newRealDoor(t)
	s := d.join(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Request-Id"); id != "other" {
			t.Errorf("the engine was asked %s", id)
		}
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}), func(c *Config) { c.Registerer = reg })
	d.cancel(t, s, "a", "revoked")
	resp, body := s.do(t, s.request(t, context.Background(), "a", "/v1/chat/completions", streamBody))
	if resp.StatusCode != 401 || errorCode(t, body) != "invalid_api_key" || resp.Header.Get("X-Spokegate-Refused") != "revoked" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if n := testutil.ToFloat64(s.metrics.refused.WithLabelValues("revoked")); n != 1 || len(s.journal.of("a")) != 0 {
		t.Errorf("counted %v times, %v", n, s.journal.of("a"))
	}
	if resp, body := s.do(t, s.request(t, context.Background(), "other", "/v1/chat/completions", chatBody)); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A cut while the body is on its way: the engine is not asked.
func TestCutInTheBody(t *testing.T) {
	d := newRealDoor(t)
	s := d.join(t, server(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }), nil)
	body, feed := io.Pipe()
	q := s.request(t, context.Background(), "a", "/v1/chat/completions", "")
	q.Body, q.ContentLength = body, int64(len(chatBody))
	got := s.begin(t, q)
	_, _ = io.WriteString(feed, chatBody[:5])
	d.cancel(t, s, "a", "revoked")
	_, _ = io.WriteString(feed, chatBody[5:])
	feed.Close()
	if resp := wait(t, got); resp.StatusCode != 401 || errorCode(t, resp.body) != "invalid_api_key" {
		t.Errorf("%d %s", resp.StatusCode, resp.body)
	}
	if r := s.journal.one(t, "a"); r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{"revoked"}) {
		t.Errorf("%v", r)
	}
}

// Cuts come at any moment, also twice and before their requests: each request ends, with one record if it was begun and with
// none if it was refused, and nothing stays.
func TestCutsAtAnyMoment(t *testing.T) {
	const n = 100
	ended := make(chan string, n)
	d := newRealDoor(t)
	s := d.join(t, endless(t, ended), nil)
	var all sync.WaitGroup
	for i := range n {
		admission, rnd := fmt.Sprint("c", i), rand.New(rand.NewSource(int64(i)))
		q := s.request(t, context.Background(), admission, "/v1/chat/completions", streamBody)
		if rnd.Intn(4) == 0 {
			q.Header.Set("Accept", "nothing")
		}
		for range 1 + rnd.Intn(2) {
			at := time.Duration(rnd.Intn(50)) * time.Millisecond
			all.Go(func() {
				time.Sleep(at)
				d.Cancel("large", admission, "revoked")
			})
		}
		wait := time.Duration(rnd.Intn(30)) * time.Millisecond
		all.Go(func() {
			time.Sleep(wait)
			resp, err := s.client.Do(q)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			whole := resp.StatusCode == 401 && errorCode(t, string(body)) == "invalid_api_key" ||
				resp.StatusCode == 200 && strings.HasSuffix(withoutNotes(string(body)), "\"upstream_cut\"}}\n\n") && strings.HasSuffix(string(body), "\"failed\":true,\"cut\":true}\n\n")
			if err != nil || !whole {
				t.Errorf("%s: %d %v %.200q", admission, resp.StatusCode, err, body)
			}
			if resp.Header.Get("X-Spokegate-Refused") == "revoked" {
				if resp.StatusCode != 401 || len(s.journal.of(admission)) != 0 {
					t.Errorf("%s was refused: %d %v", admission, resp.StatusCode, s.journal.of(admission))
				}
				return
			}
			if r := s.journal.one(t, admission); r.Outcome != "upstream_cut" || !slices.Equal(r.Anomalies, []string{"revoked"}) {
				t.Errorf("%v", r)
			}
		})
	}
	all.Wait()
	eventually(t, "nothing runs", func() bool {
		s.Worker.running.mu.Lock()
		defer s.Worker.running.mu.Unlock()
		return s.states.count() == 0 && len(s.Worker.running.here) == 0
	})
}

func TestEarlyCutsAreBounded(t *testing.T) {
	r, now := newRunning(), time.Unix(1000, 0)
	enter := func(admission string, at time.Time) *cut {
		ctx, cancel := context.WithCancelCause(context.Background())
		leave, before := r.enter(request{admission: admission}, cancel, at)
		if before == nil {
			if ctx.Err() != nil {
				t.Errorf("%s is cut as it enters", admission)
			}
			leave()
		}
		return before
	}
	for i := range earlyMost + 10 {
		r.cut(fmt.Sprint(i), "revoked", now)
	}
	if len(r.early) != earlyMost || len(r.order) != earlyMost || enter("9", now) != nil || enter("10", now) == nil {
		t.Errorf("%d and %d are remembered", len(r.early), len(r.order))
	}
	if enter("10", now.Add(contextLife)) == nil {
		t.Error("forgotten while its context lives")
	}
	if enter("10", now.Add(contextLife+time.Second)) != nil || len(r.early)+len(r.order)+len(r.here) != 0 {
		t.Errorf("%d and %d are remembered for ever", len(r.early), len(r.order))
	}
}
