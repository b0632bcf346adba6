package envoy

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
)

// notes: what a shim has noted of an answer reaches the access log, as far as it has passed, and nobody else.
func (r *rig) notes(t *testing.T) {
	var ids []string
	t.Run("of a whole answer", func(t *testing.T) {
		const note = `{"prompt_tokens":7,"completion_tokens":2,"terminal":true,"bytes":4}`
		a := r.noting(t, note, "done")
		if a.status != 200 || a.body != "done" || a.header.Get(NoteHeader) != "" {
			t.Errorf("the client got %+v", a)
		}
		if e := r.logged(t, a.id); note != noted(e) || e.Response.ResponseBodyBytes != 4 {
			t.Errorf("logged %v", e)
		}
		ids = append(ids, a.id)
	})
	for name, c := range map[string]struct {
		want   string
		pieces []string
	}{
		"none":                            {NoteStream, []string{"data: 1\n\n"}},
		"one":                             {"{}", []string{"data: 1\n\n: spokegate-usage {}\n\n"}},
		"the last of a piece":             {"3", []string{"\n: spokegate-usage 1\n\n: spokegate-usage 2\n: spokegate-usage 3\ndata: \n\n"}},
		"the last of all":                 {"2", []string{"\n: spokegate-usage 1\n\n", "\n: spokegate-usage 2\n\n", "data: 3\n\n", "\n"}},
		"begun in one piece":              {"12", []string{"data: 1\n\n: spoke", "gate-usage 1", "2\n"}},
		"a piece begins with it":          {"2", []string{"data: 1\n\n", ": spokegate-usage 2\n\n"}},
		"behind a piece that is long":     {"1", []string{strings.Repeat("x", 70000) + "\n: spokegate-usage ", "1\n", "data: 2"}},
		"its end has not passed":          {"1", []string{"\n: spokegate-usage 1\n\ndata: 2\n\n: spokegate-usage 2"}},
		"not at the beginning of a line":  {NoteStream, []string{"data: \"\\n: spokegate-usage 1\"\n\n", "x: spokegate-usage 2\n"}},
		"another's comment":               {NoteStream, []string{"\n: spokegate-usages 2\n", "\n:spokegate-usage 2\n"}},
		"longer than any":                 {"1", []string{"\n: spokegate-usage 1\n", "\n: spokegate-usage " + strings.Repeat("2", 400) + "\n"}},
		"longer than any, in pieces":      {"1", []string{"\n: spokegate-usage 1\n", "\n: spokegate-usage " + strings.Repeat("2", 300), strings.Repeat("2", 300) + "\n"}},
		"as long as they get, in pieces":  {strings.Repeat("2", 280), []string{"\n: spokegate-usage " + strings.Repeat("2", 270), strings.Repeat("2", 10), "\n"}},
		"bytes that are no text":          {"1", []string{"\xff\x00\n: spokegate-usage 1\n\x00: spokegate-usage 2\n: spokegate-usage \xff\n: spokegate-usage \x00\n"}},
		"lines that end with CRLF before": {"1", []string{"data: 1\r\n\r\n: spokegate-usage 1\n\n"}},
	} {
		t.Run("of a stream: "+name, func(t *testing.T) {
			a := r.noting(t, NoteStream, c.pieces...)
			if a.status != 200 || a.body != strings.Join(c.pieces, "") || a.header.Get(NoteHeader) != "" {
				t.Errorf("the client got %d, %d bytes, %v", a.status, len(a.body), a.header)
			}
			if got := noted(r.logged(t, a.id)); got != c.want {
				t.Errorf("logged %q, want %q", got, c.want)
			}
			ids = append(ids, a.id)
		})
	}
	t.Run("of streams cut into any pieces", func(t *testing.T) { ids = append(ids, r.anyPieces(t)...) })
	t.Run("of a stream that breaks off", func(t *testing.T) { ids = append(ids, r.brokenNotes(t)...) })
	r.notMetered(t, ids...)
	t.Run("a client says so", func(t *testing.T) {
		r.workers["a"].answers(t, func(w http.ResponseWriter, q *http.Request) { io.WriteString(w, "done"+q.Header.Get(NoteHeader)) })
		a := r.post(t, r.list("a"), NoteHeader, "{}")
		if m := r.services.meter.ended.await(t, a.id, some[metered])[0]; !m.end || string(m.body) != "done" {
			t.Errorf("metered %q", m.body)
		}
		if e := r.logged(t, a.id); noted(e) != "" {
			t.Errorf("logged %v", e)
		}
	})
}

func noted(e *accesslogv3.HTTPAccessLogEntry) string {
	return e.CommonProperties.Metadata.FilterMetadata[OwnNamespace].GetFields()[NoteHeader].GetStringValue()
}

// noting is answered by a worker that sends these pieces, one after the other, with this note.
func (r *rig) noting(t *testing.T, note string, pieces ...string) answer {
	t.Helper()
	r.workers["a"].answers(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(NoteHeader, note)
		for _, p := range pieces {
			io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	})
	return r.post(t, r.list("a"))
}

// anyPieces compares Envoy with a regular expression, on streams of what is hard.
func (r *rig) anyPieces(t *testing.T) (ids []string) {
	parts := []string{"\n", "\n", ": spokegate-usage ", ": spokegate-usage ", "{\"events\":1}", "7", "data: x", "\r", strings.Repeat("y", 290), ": spoke"}
	line := regexp.MustCompile(`\n: spokegate-usage ([ -~]{0,319})\n`)
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var all strings.Builder
		for range 3 + rnd.IntN(40) {
			all.WriteString(parts[rnd.IntN(len(parts))])
		}
		bytes := "data: 0\n" + all.String()
		var pieces []string
		for rest := bytes; rest != ""; {
			n := 1 + rnd.IntN(min(len(rest), 1+rnd.IntN(400)))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		want := NoteStream
		for from := 0; ; {
			m := line.FindStringSubmatchIndex(bytes[from:])
			if m == nil {
				break
			}
			want = bytes[from+m[2] : from+m[3]]
			from += m[1] - 1 // one line feed may end a line and precede another
		}
		a := r.noting(t, NoteStream, pieces...)
		if got := noted(r.logged(t, a.id)); got != want || a.body != bytes {
			t.Errorf("seed %d: of %.3000q it kept %q, want %q", seed, pieces, got, want)
		}
		ids = append(ids, a.id)
	}
	return ids
}

// brokenNotes: what has passed is known while a stream runs, and when either side breaks it off.
func (r *rig) brokenNotes(t *testing.T) (ids []string) {
	for _, who := range []string{"client", "worker"} {
		over := make(chan struct{})
		r.workers["a"].answers(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set(NoteHeader, NoteStream)
			io.WriteString(w, "first\n: spokegate-usage 1\n\nsecond\n: spokegate-usage")
			w.(http.Flusher).Flush()
			select {
			case <-over:
				panic(http.ErrAbortHandler)
			case <-q.Context().Done():
			}
		})
		ctx, leave := context.WithCancel(t.Context())
		id := r.stream(t, ctx, "a", func(body io.Reader) {
			b := make([]byte, len("\n: spokegate-usage 1\n\nsecond\n: spokegate-usage"))
			if _, err := io.ReadFull(body, b); err != nil {
				t.Fatal(err)
			}
		})
		running := r.services.log.running.await(t, id, func(es []*logEntry) bool { return len(es) > 0 && noted(es[len(es)-1]) == "1" })
		if e := running[len(running)-1]; e.CommonProperties.AccessLogType != accesslogv3.AccessLogType_DownstreamPeriodic ||
			e.CommonProperties.TimeToFirstDownstreamTxByte == nil || e.Response.GetResponseCode().GetValue() != 200 || e.Request.RequestId != id {
			t.Errorf("while it runs, logged %v", e)
		}
		if who == "client" {
			leave()
		} else {
			close(over)
		}
		if e := r.logged(t, id); noted(e) != "1" {
			t.Errorf("%s broke off, logged %v", who, e)
		}
		leave()
		ids = append(ids, id)
	}
	return ids
}
