package scrape

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spokegate/spokegate/enginemetrics"
)

// found is what one look has found.
type found struct {
	at       time.Time
	answered bool   // it serves
	why      string // it does not

	counters enginemetrics.Counters
	known    bool  // the counters are
	err      error // why they are not; nil: the engine has none
}

// kinds are the engines whose metrics are known by name. TensorRT-LLM's /metrics is a list of iterations that reading empties.
var kinds = map[string]struct {
	path     string
	families enginemetrics.Families
}{
	"vllm":   {"/metrics", enginemetrics.VLLM},
	"sglang": {"/metrics", enginemetrics.SGLang},
	"trtllm": {"/prometheus/metrics", enginemetrics.TRTLLM},
	"sim":    {"/metrics", enginemetrics.Sim},
}

// look asks a worker whether it serves, and if so what it counts.
func (s *Scraper) look(ctx context.Context, t Target) found {
	f := found{at: time.Now()}
	if err := s.healthy(ctx, t); err != nil {
		s.metrics.asked("health", "failed")
		f.why = short(err)
		return f
	}
	s.metrics.asked("health", "ok")
	f.answered = true
	switch f.counters, f.known, f.err = s.read(ctx, t); {
	case f.err != nil:
		s.metrics.asked("metrics", "failed")
	case !f.known:
		s.metrics.asked("metrics", "none")
	default:
		s.metrics.asked("metrics", "ok")
	}
	return f
}

// mostSaid bounds what is kept of an error, in bytes: it may repeat what an engine sent.
const mostSaid = 256

func short(err error) string {
	s := err.Error()
	if len(s) > mostSaid {
		s = strings.ToValidUTF8(s[:mostSaid], "") + "…"
	}
	return s
}

// healthy asks GET /health. An engine that has no such page answers, and that is enough; one that answers 5xx says that it does
// not serve.
func (s *Scraper) healthy(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.get(ctx, t, "/health")
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("GET /health answers %d", resp.StatusCode)
	}
	return nil
}

// read reads its metrics. Not known and no error: the engine has none.
func (s *Scraper) read(ctx context.Context, t Target) (c enginemetrics.Counters, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	kind, named := kinds[t.Worker.Engine]
	path := t.Metrics
	if path == "" {
		path = kind.path
	}
	if path == "" {
		path = "/metrics"
	}
	resp, err := s.get(ctx, t, path)
	if err != nil {
		return c, false, err
	}
	defer drain(resp.Body)
	if resp.StatusCode == http.StatusNotFound {
		return c, false, nil
	}
	if resp.StatusCode != http.StatusOK {
		return c, false, fmt.Errorf("GET %s answers %d", path, resp.StatusCode)
	}
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-ctx.Done():
		return c, false, errors.New("too many pages are being read")
	}
	page, err := enginemetrics.Read(resp.Body, enginemetrics.Known)
	if err != nil {
		return c, false, fmt.Errorf("GET %s: %w", path, err)
	}
	families, ok := enginemetrics.Recognise(page)
	switch {
	case !ok && named:
		return c, false, fmt.Errorf("GET %s has none of %s's metrics", path, t.Worker.Engine)
	case !ok:
		return c, false, nil
	}
	return families.Read(page), true, nil
}

func (s *Scraper) get(ctx context.Context, t Target, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Worker.Addr+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "spokegate-epp")
	resp, err := s.client.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return resp, nil
}
