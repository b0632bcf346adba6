package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// envoyPatience is how long Envoy may take for its metrics, less than Prometheus waits by default.
const envoyPatience = 8 * time.Second

// envoyAtOnce is how often Envoy is asked at one time. It answers on the thread that also takes its configuration, where thousands
// of clusters cost it much; two Prometheus may ask in one moment.
const envoyAtOnce = 2

// envoyMetrics passes on Envoy's metrics and nothing else of its admin page: whoever reaches that rules Envoy, so it stays on loopback.
func envoyMetrics(admin string, patience time.Duration) page {
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience, // no proxy of the environment: it is this machine's
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	asking := make(chan struct{}, envoyAtOnce)
	return page{"GET /envoy/metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asking <- struct{}{}:
			defer func() { <-asking }()
		default:
			http.Error(w, "others are asking Envoy; try again", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * patience)) // who asks and does not read is not waited for
		resp, err := askEnvoy(r.Context(), client, admin)
		if err != nil {
			http.Error(w, fmt.Sprintf("Envoy's admin page at %s does not tell: %v", admin, err), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		_, _ = io.Copy(w, resp.Body) // who asked sees that it ends early
	})}
}

func askEnvoy(ctx context.Context, client *http.Client, admin string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/stats/prometheus", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp, err
}
