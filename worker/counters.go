package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/enginemetrics"
)

const (
	// readMost is how long an engine's metrics may take to come.
	readMost = 10 * time.Second
	// Engines count a token a moment after they have sent it: a reading counts once two in a row are the same.
	settleEvery = 100 * time.Millisecond
	settleMost  = 3 * time.Second
)

type counters = enginemetrics.Counters

// loadOf is what an engine says of its load in the words of worker/v1; nil: it says nothing.
func loadOf(c counters) *workerv1.Load {
	if !c.SaysLoad() {
		return nil
	}
	l := &workerv1.Load{Running: enginemetrics.Uint32(c.Running), Waiting: enginemetrics.Uint32(c.Waiting), CacheUsedPermille: c.CachePermille()}
	if c.Preemptions != nil {
		l.Preemptions = uint64(max(*c.Preemptions, 0))
	}
	return l
}

// ranksOf are the same of each data-parallel rank; nil: the engine has one, or does not tell them apart.
func ranksOf(c counters) (all []*workerv1.Load) {
	for _, r := range c.Ranks {
		all = append(all, loadOf(r))
	}
	return all
}

// errNoMetrics says that there are none to read, now and later.
var errNoMetrics = errors.New("the engine has no metrics")

// scrape is one page of Prometheus text: what is named of it.
func scrape(ctx context.Context, base *url.URL, via http.RoundTripper, path string, names enginemetrics.Names) (enginemetrics.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readMost)
	defer cancel()
	resp, err := get(ctx, base, via, path)
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		return nil, errNoMetrics
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := enginemetrics.Read(resp.Body, names)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return page, nil
}
