package worker

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/identity"
)

// scripted is an engine that answers each request by a script, and keeps what it was asked.
type scripted struct {
	mu     sync.Mutex
	bodies []string
	answer http.HandlerFunc
}

func (e *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.bodies = append(e.bodies, string(b))
	answer := e.answer
	e.mu.Unlock()
	answer(w, r)
}

func (e *scripted) script(answer http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

func (e *scripted) asked() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.bodies...)
}

// says answers with a status and a body.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// pairOf are a prefiller and a decoder of one door, with their engines.
type pairOf struct {
	prefiller, decoder *shim
	prefill, decode    *scripted
}

func newPair(t *testing.T, change func(*Config)) *pairOf {
	t.Helper()
	p := &pairOf{prefill: &scripted{}, decode: &scripted{}}
	p.prefill.answer = says(200, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":7,"completion_tokens":1},"kv_transfer_params": `+transferred+`}`)
	p.decode.answer = func(w http.ResponseWriter, _ *http.Request) {
		sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n", "data: [DONE]\n\n")
	}
	p.decoder = newShim(t, server(t, p.decode.ServeHTTP), change)
	p.prefiller = newShimAt(t, p.decoder.door, server(t, p.prefill.ServeHTTP), func(c *Config) {
		c.Name = "w2"
		if change != nil {
			change(c)
		}
	})
	return p
}

// leg is the context for the prefill at a worker.
func (p *pairOf) leg(admission, worker, body string) string {
	return p.decoder.door.minter.Mint(identity.Context{Admission: admission, Key: "k", Team: "t", Model: "m", Endpoint: "large", Revision: 3,
		Leg: identity.LegPrefill, Worker: worker, Body: identity.BodyDigest([]byte(body))}, time.Now())
}

// send asks the decoder, and names the prefiller.
func (p *pairOf) send(t *testing.T, admission, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	q := p.decoder.request(t, context.Background(), admission, path, body, "X-Spokegate-Prefill-Context", p.leg(admission, p.prefiller.Addr(), body))
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	return p.decoder.do(t, q)
}

func (p *pairOf) counted(outcome string) int {
	return int(testutil.ToFloat64(p.decoder.metrics.prefills.WithLabelValues(outcome)))
}
