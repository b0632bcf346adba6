//go:build kube

package test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// gatewayLong: answers of 17 seconds, streamed and in one piece, are metered to their end. Envoy Gateway limits the meter's
// stream to 10 s, and Envoy's own limit for an answer is 15 s.
func gatewayLong(t *testing.T) {
	u := startForeign(t, simPolicy())
	rates, at := filepath.Join(u.dir, "rates.json"), freeAddr()
	if err := os.WriteFile(rates, []byte(`{"prefill_tokens_per_second": 2000000, "decode_tokens_per_second": 10, "decode_slowdown": 0, "overhead_ms": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	u.gatewayWorker(t, "w1", "sim", at, "-rates", rates)
	u.startGateway(t, u.printed(t, map[string][]string{"sim": {at}}))
	u.awaitGateway(t, "sim-small")

	const tokens, atLeast = 170, 15 * time.Second
	asked := map[string]<-chan timed{}
	for _, p := range protocols {
		for _, more := range []string{"", `"stream":true,`, `"stream":true,"stream_options":{"include_usage":true},`} {
			c := post(u.key("main"), "/v1/chat/completions",
				fmt.Sprintf(`{"model":"sim-small",%s"max_tokens":%d,"min_tokens":%[2]d,"messages":[{"role":"user","content":"hello"}]}`, more, tokens))
			asked[p.name+" {"+more+"}"] = u.ask(t, p, c)
		}
	}
	for name, answer := range asked {
		a := <-answer
		if a.err != nil || a.status != http.StatusOK || a.took < atLeast {
			t.Errorf("%s: after %v: %v, %v", name, a.took, a.err, a.reply)
			continue
		}
		rec, shims := u.ledger.usage(t, a.admission()), u.ledger.served(t, a.admission())
		if rec.GetOutcome() != usage.OutcomeComplete || rec.GetCompletionTokens() != tokens {
			t.Errorf("%s: after %v the usage record is %s; the worker's %s", name, a.took, usage.AppendJSON(nil, rec), usage.AppendJSON(nil, shims))
		}
	}
}

type timed struct {
	reply
	err  error
	took time.Duration
}

func (u *up) ask(t *testing.T, p protocol, c call) <-chan timed {
	out := make(chan timed, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), gatewayPatience)
		defer cancel()
		began := time.Now()
		r, err := p.send(ctx, u.listen, c)
		out <- timed{r, err, time.Since(began)}
	}()
	return out
}
