package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// usageCase is one line of test/testdata/cases/usage.yaml.
type usageCase struct {
	Name   string         `yaml:"name"`
	Path   string         `yaml:"path"`
	JSON   string         `yaml:"json"`
	Chunks []string       `yaml:"chunks"`
	Status int            `yaml:"status"`
	Close  string         `yaml:"close"`
	Linger int            `yaml:"linger_ms"`
	Want   map[string]any `yaml:"want"`
}

func usageCases(t *testing.T) []usageCase {
	t.Helper()
	raw, err := os.ReadFile("../test/testdata/cases/usage.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []usageCase
	if err := yaml.UnmarshalWithOptions(raw, &cases, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 15 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

// play answers as the case says.
func (c usageCase) play(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rc := http.NewResponseController(w)
	if c.JSON != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(max(c.Status, 200))
		_, _ = io.WriteString(w, c.JSON)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, chunk := range c.Chunks {
		_, _ = io.WriteString(w, chunk)
		_ = rc.Flush()
	}
	switch c.Close {
	case "client": // the engine goes on until it is cancelled
		<-r.Context().Done()
	case "server_reset":
		conn, _, err := rc.Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}
}

func TestUsageCases(t *testing.T) {
	for i, c := range usageCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			cancelled := make(chan struct{})
			s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(cancelled)
				c.play(w, r)
			}), nil)
			body := streamBody
			if c.JSON != "" {
				body = chatBody
			}
			path := c.Path
			if path == "" {
				path = "/v1/chat/completions"
			}
			admission := "case-" + strconv.Itoa(i)
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			resp, err := s.client.Do(s.request(t, ctx, admission, path, body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if c.Close == "client" {
				readEvents(t, resp.Body, len(c.Chunks))
				leave()
				wait(t, cancelled)
			} else if _, err := io.ReadAll(resp.Body); err != nil {
				t.Fatalf("the client's body is not whole: %v", err)
			}
			checkRecord(t, s.journal.one(t, admission), c.Want)
		})
	}
}

func wait[T any](t *testing.T, done <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-done:
	case <-time.After(patience):
		t.Fatalf("not within %v", patience)
	}
	return value
}

// readEvents reads until n events, or [DONE] if events were taken out.
func readEvents(t *testing.T, body io.Reader, n int) {
	t.Helper()
	var event []byte
	buf := make([]byte, 1)
	for n > 0 {
		if _, err := body.Read(buf); err != nil {
			t.Fatalf("%v after %q", err, event)
		}
		if event = append(event, buf[0]); !bytes.HasSuffix(event, []byte("\n\n")) {
			continue
		}
		if bytes.HasSuffix(event, []byte("[DONE]\n\n")) {
			return
		}
		n--
		event = event[:0]
	}
}

func checkRecord(t *testing.T, r *usagev1.Record, want map[string]any) {
	t.Helper()
	for name, value := range want {
		var got any
		switch name {
		case "prompt":
			got = number(r.PromptTokens)
		case "cached":
			got = number(r.CachedTokens)
		case "completion":
			got = number(r.CompletionTokens)
		case "outcome":
			got = r.Outcome
		case "counted_from":
			got = r.CountedFrom
		case "anomaly":
			got = fmt.Sprint(r.Anomalies)
			value = fmt.Sprintf("[%v]", value)
		default:
			t.Fatalf("the case wants %q, which the test does not know", name)
		}
		if fmt.Sprint(got) != fmt.Sprint(value) {
			t.Errorf("%s: %v, expected %v in %v", name, got, value, r)
		}
	}
}

func number(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}
