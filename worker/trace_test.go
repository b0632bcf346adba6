package worker

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

const (
	doorsSpan   = "00-11111111111111111111111111111111-1111111111111111-01"
	doorsNoSpan = "00-11111111111111111111111111111111-1111111111111111-00"
)

// tracedShim is a shim before an engine that answers with status and body, and tells the traceparents that it heard.
func tracedShim(t *testing.T, status int, body string, log io.Writer) (*shim, *tracetest.SpanRecorder, chan string) {
	kept, heard := tracetest.NewSpanRecorder(), make(chan string, 1)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(kept), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get("Traceparent")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}), func(c *Config) {
		c.Tracer = provider.Tracer("")
		if log != nil {
			c.Log = slog.New(slog.NewJSONHandler(log, nil))
		}
	})
	return s, kept, heard
}

func TestSpan(t *testing.T) {
	const good = `{"id":"c","object":"chat.completion","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
	for name, c := range map[string]struct {
		traceparent, body string
		status            int
		answer            string
		outcome           string // empty: no span
		tokens            bool
	}{
		"complete":           {doorsSpan, `{"model":"m","messages":[]}`, 200, good, "complete", true},
		"the engine refuses": {doorsSpan, `{"model":"m","messages":[]}`, 400, `{"error":{"message":"no"}}`, "upstream_error", false},
		"no request at all":  {doorsSpan, `{"model":7}`, 0, "", "not_served", false},
		"not traced":         {doorsNoSpan, `{"model":"m","messages":[]}`, 200, good, "", false},
		"nobody's word":      {"", `{"model":"m","messages":[]}`, 200, good, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, kept, heard := tracedShim(t, c.status, c.answer, nil)
			s.do(t, s.request(t, context.Background(), "adm", "/v1/chat/completions", c.body, "Traceparent", c.traceparent))
			s.end(t) // the span ends after the answer
			spans := kept.Ended()
			if c.outcome == "" {
				if tp := <-heard; len(spans) != 0 || strings.HasSuffix(tp, "-01") {
					t.Errorf("%d spans, and the engine heard %q", len(spans), tp)
				}
				return
			}
			if len(spans) != 1 {
				t.Fatalf("%d spans", len(spans))
			}
			got := map[string]string{}
			for _, kv := range spans[0].Attributes() {
				got[string(kv.Key)] = kv.Value.String()
			}
			if got["spokegate.outcome"] != c.outcome || got["spokegate.admission"] != "adm" || (got["gen_ai.usage.input_tokens"] == "7") != c.tokens {
				t.Errorf("%v", got)
			}
			sc := spans[0].SpanContext()
			if spans[0].Parent().SpanID().String() != "1111111111111111" || sc.TraceID().String() != strings.Repeat("1", 32) {
				t.Errorf("it hangs below %v", spans[0].Parent())
			}
			if c.status == 0 {
				return
			}
			if tp := <-heard; tp != "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01" {
				t.Errorf("the engine heard %q", tp)
			}
		})
	}
}

// lockedBuffer is written by the shim and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// TestStrangersAreNotTracedNorQuoted: without a context of a door, a traceparent is not looked at, and what a stranger
// writes is in no log.
func TestStrangersAreNotTracedNorQuoted(t *testing.T) {
	var log lockedBuffer
	s, kept, _ := tracedShim(t, 200, "{}", &log)
	for _, id := range []string{"a stranger's text", "6d5ce9ba-6f8d-4a2e-8a50-3f2b6f6e2b11"} {
		q := s.request(t, context.Background(), "adm", "/v1/chat/completions", `{"model":"m"}`, "Traceparent", doorsSpan, "X-Request-Id", id)
		q.Header.Set("X-Spokegate-Context", "a stranger's text")
		s.do(t, q)
	}
	s.end(t)
	text := log.String()
	if len(kept.Ended()) != 0 || strings.Contains(text, "stranger") || strings.Count(text, `"msg":"refused"`) != 2 ||
		!strings.Contains(text, `"admission":"6d5ce9ba-6f8d-4a2e-8a50-3f2b6f6e2b11","code":"context_invalid"`) {
		t.Errorf("%d spans, log %s", len(kept.Ended()), text)
	}
}
