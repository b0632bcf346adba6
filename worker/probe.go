package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spokegate/spokegate/openai"
)

// answerMost bounds what is read of an engine's answer to the shim itself.
const answerMost = 1 << 20

// probeResult is one real generation that the shim asked for.
type probeResult struct {
	err       error // nil: answered
	refused   bool  // it answers, and does not do such a thing: the probe proves nothing
	operation openai.Op
	status    int
	usage     openai.Report
	began     time.Time
	took      time.Duration
	reached   bool // the engine may have taken it in
}

// prober asks an engine for one token. It remembers which operation the engine knows.
type prober struct {
	base *url.URL
	via  http.RoundTripper
	at   int // of probeOps
}

// probeOps are tried in order until the engine knows one.
var probeOps = []struct {
	op   openai.Op
	path string
	body func(model string) map[string]any
}{
	{openai.Completions, "/v1/completions", func(m string) map[string]any {
		return map[string]any{"model": m, "prompt": "ok", "max_tokens": 1, "temperature": 0}
	}},
	{openai.Chat, "/v1/chat/completions", func(m string) map[string]any {
		return map[string]any{"model": m, "messages": []any{map[string]any{"role": "user", "content": "ok"}}, "max_tokens": 1, "temperature": 0}
	}},
	{openai.Embeddings, "/v1/embeddings", func(m string) map[string]any {
		return map[string]any{"model": m, "input": "ok"}
	}},
}

// cannotDo are the answers of an engine that does not do what it was asked.
var cannotDo = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity, http.StatusNotImplemented}

// ask makes one probe, which may take until ctx ends.
func (p *prober) ask(ctx context.Context) probeResult {
	model, err := p.model(ctx)
	if err != nil {
		return probeResult{err: err, began: time.Now()}
	}
	var last probeResult
	for ; p.at < len(probeOps); p.at++ {
		last = p.try(ctx, probeOps[p.at].op, probeOps[p.at].path, probeOps[p.at].body(model))
		if last.err == nil || !slices.Contains(cannotDo, last.status) {
			return last
		}
	}
	p.at, last.refused = 0, true
	return last
}

func (p *prober) try(ctx context.Context, op openai.Op, path string, body any) (r probeResult) {
	r = probeResult{operation: op, began: time.Now()}
	defer func() { r.took = time.Since(r.began) }()
	var b []byte
	if b, r.err = json.Marshal(body); r.err != nil {
		return r
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, under(p.base, path).String(), bytes.NewReader(b))
	if err != nil {
		r.err = err
		return r
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "spokegate-probe")
	resp, err := p.via.RoundTrip(q)
	if err != nil {
		r.err, r.reached = fmt.Errorf("no answer to POST %s: %w", path, err), !neverArrived(err)
		return r
	}
	defer resp.Body.Close()
	r.reached, r.status = true, resp.StatusCode
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	switch {
	case err != nil:
		r.err = fmt.Errorf("POST %s broke off: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		r.err = fmt.Errorf("POST %s answered %d: %s", path, resp.StatusCode, clip(string(bytes.TrimSpace(answer))))
	default:
		r.usage = usageOf(op, answer)
	}
	return r
}

// usageOf reads the tokens of a whole answer.
func usageOf(op openai.Op, answer []byte) openai.Report {
	m := openai.NewMeter(op, false)
	_, _ = m.Write(answer)
	return m.Close()
}

// model is the first that the engine lists; an engine without a list takes any.
func (p *prober) model(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readMost)
	defer cancel()
	resp, err := get(ctx, p.base, p.via, "/v1/models")
	var status *statusError
	if errors.As(err, &status) && slices.Contains(cannotDo, status.code) {
		return "probe", nil
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, answerMost)).Decode(&list)
	if err != nil || len(list.Data) == 0 || list.Data[0].ID == "" {
		return "probe", nil // the probe itself will tell whether it lives
	}
	return list.Data[0].ID, nil
}
