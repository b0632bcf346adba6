package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// watchEvery is how often an attached engine is asked whether it is there, and watchMost how long it may take.
	watchEvery = time.Second
	watchMost  = 5 * time.Second
	// missesMost in a row make it failed.
	missesMost = 3
)

// attached is an engine that somebody else runs.
type attached struct {
	kind      string
	speech    dialect
	base      *url.URL
	transport *http.Transport
	probe     http.RoundTripper
	every     time.Duration
	anew      chan struct{}
}

// AttachedKinds are what an engine that runs already may be said to be.
func AttachedKinds() []string { return append([]string{"attached", "sim"}, Kinds()...) }

// NewAttached watches an OpenAI-compatible engine at base, with or without a final /v1. kind is one of AttachedKinds; empty:
// "attached", which goes by the names of its metrics.
func NewAttached(base, kind string) (Engine, error) {
	var speech dialect
	switch known, ok := kinds[kind]; {
	case ok:
		speech = known.dialect
	case kind == "sim":
		speech = simSpeech
	case kind == "", kind == "attached":
		kind, speech = "attached", dialect{anyKind: true}
	default:
		return nil, fmt.Errorf("there is no engine %q: %s expected", kind, strings.Join(AttachedKinds(), ", "))
	}
	u, err := url.Parse(base)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("engine URL %q: http://HOST:PORT expected", base)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("engine URL: no user, query or fragment expected")
	}
	u.Path = "/" + strings.Trim(strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1"), "/")
	return &attached{kind: kind, speech: speech, base: u, transport: newTransport(nil), probe: newProbe(nil), every: watchEvery, anew: make(chan struct{}, 1)}, nil
}

func (a *attached) Kind() string                 { return a.kind }
func (a *attached) speaks() dialect              { return a.speech }
func (a *attached) Base() *url.URL               { return a.base }
func (a *attached) Transport() http.RoundTripper { return a.transport }

// renew: its counters began anew, so it did, too fast for its health to show.
func (a *attached) renew() {
	select {
	case a.anew <- struct{}{}:
	default:
	}
}

func (a *attached) Run(ctx context.Context, log *slog.Logger, tell func(Life)) {
	defer a.transport.CloseIdleConnections()
	log.Warn("the engine runs on its own: whoever reaches its address passes by keys, limits and usage", "engine", a.base.String())
	life := Life{State: workerv1.State_STATE_STARTING, Description: Description{Epoch: newEpoch()}}
	tell(life)
	for misses := 0; ; {
		next := life
		select {
		case <-a.anew:
			next.Epoch = newEpoch()
		default:
		}
		if err := a.healthy(ctx); err == nil {
			misses = 0
			next.State, next.Reason, next.Cause = workerv1.State_STATE_READY, "", ""
		} else if misses++; misses >= missesMost && ctx.Err() == nil {
			next.State, next.Reason, next.Cause = workerv1.State_STATE_FAILED, err.Error(), causeSilent
		}
		if next != life {
			if next.State == workerv1.State_STATE_READY && life.State == workerv1.State_STATE_FAILED {
				next.Epoch = newEpoch() // it may have been restarted
			}
			life = next
			tell(life)
		}
		if !sleep(ctx, a.every) {
			return
		}
	}
}

// healthy asks /health, or the list of models where there is no such path.
func (a *attached) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchMost)
	defer cancel()
	var missing *statusError
	resp, err := get(ctx, a.base, a.probe, "/health")
	if errors.As(err, &missing) && missing.code == http.StatusNotFound {
		resp, err = get(ctx, a.base, a.probe, "/v1/models")
	}
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.Body.Close()
}

type statusError struct {
	path string
	code int
}

func (s *statusError) Error() string { return fmt.Sprintf("GET %s answered %d", s.path, s.code) }

// get asks the engine itself, through a transport that is not used for requests. Any answer but 200 is an error.
func get(ctx context.Context, base *url.URL, probe http.RoundTripper, path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, under(base, path).String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := probe.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &statusError{path, resp.StatusCode}
	}
	return resp, nil
}
