package main

import (
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
// admin nil: there is no such page.
func envoyMetrics(admin *envoyAdmin) page {
	asking := make(chan struct{}, envoyAtOnce)
	return page{"GET /envoy/metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if admin == nil {
			http.Error(w, "this door knows of no admin page of Envoy: -admin is empty", http.StatusNotFound)
			return
		}
		select {
		case asking <- struct{}{}:
			defer func() { <-asking }()
		default:
			http.Error(w, "others are asking Envoy; try again", http.StatusServiceUnavailable)
			return
		}
		// Who asks and does not read is not waited for. The deadline stays with the connection, so that ends too.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * admin.client.Timeout))
		w.Header().Set("Connection", "close")
		resp, err := admin.open(r.Context(), http.MethodGet, "/stats/prometheus")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
			_ = resp.Body.Close()
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("Envoy's admin page does not tell: %v", err), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		_, _ = io.Copy(w, resp.Body) // who asked sees that it ends early
	})}
}
