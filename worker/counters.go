package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// metricsMost bounds an engine's metrics page, and readMost how long it may take to come.
	metricsMost = 8 << 20
	readMost    = 10 * time.Second
	// Engines count a token a moment after they have sent it: a reading counts once two in a row are the same.
	settleEvery = 100 * time.Millisecond
	settleMost  = 3 * time.Second
)

// counters is what an engine says of itself at a moment. A pointer that is nil: it does not say.
type counters struct {
	prompt, completion *int64
	running, waiting   *int64
	cache              *float64 // 0 to 1
	preemptions        *int64
	transfers          int64 // of KV blocks: how many, how long in all, and how much; failed ones
	transferTime       float64
	transferBytes      float64
	transferFailed     int64
}

// tokens says whether two readings have counted the same.
func (c counters) tokens(d counters) bool {
	return same(c.prompt, d.prompt) && same(c.completion, d.completion)
}

func same(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// load in the words of worker/v1; nil: the engine says nothing.
func (c counters) load() *workerv1.Load {
	if c.running == nil && c.waiting == nil && c.cache == nil {
		return nil
	}
	l := &workerv1.Load{Running: clampUint32(c.running), Waiting: clampUint32(c.waiting)}
	if c.cache != nil {
		l.CacheUsedPermille = uint32(math.Round(1000 * min(max(*c.cache, 0), 1)))
	}
	if c.preemptions != nil {
		l.Preemptions = uint64(max(*c.preemptions, 0))
	}
	return l
}

func clampUint32(n *int64) uint32 {
	if n == nil {
		return 0
	}
	return uint32(min(max(*n, 0), math.MaxUint32))
}

// errNoMetrics says that there are none to read, now and later.
var errNoMetrics = errors.New("the engine has no metrics")

// scrape is one page of Prometheus text, parsed.
func scrape(ctx context.Context, base *url.URL, via http.RoundTripper, path string) (map[string]*dto.MetricFamily, error) {
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
	m, err := parseMetrics(io.LimitReader(resp.Body, metricsMost))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return m, nil
}

func parseMetrics(r io.Reader) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(r)
}

// read takes what counts out of a page. Engines with several ranks or models have a line of each: they add up, but for shares,
// of which the largest counts.
func (f families) read(page map[string]*dto.MetricFamily) counters {
	var c counters
	c.prompt, c.completion = total(page, f.prompt), total(page, f.completion)
	c.running, c.waiting = total(page, f.running), total(page, f.waiting)
	c.preemptions = total(page, f.preemptions)
	if family := page[f.cache]; family != nil {
		for _, m := range family.Metric {
			if v := valueOf(m); !math.IsNaN(v) && (c.cache == nil || v > *c.cache) {
				c.cache = &v
			}
		}
	}
	c.transfers, c.transferTime = histogram(page[f.transferTime])
	_, c.transferBytes = histogram(page[f.transferBytes])
	if n := total(page, f.transferFailed); n != nil {
		c.transferFailed = *n
	}
	return c
}

// total adds a family up; nil where the page has it not.
func total(page map[string]*dto.MetricFamily, name string) *int64 {
	family := page[name]
	if family == nil || len(family.Metric) == 0 {
		return nil
	}
	var sum float64
	for _, m := range family.Metric {
		sum += valueOf(m)
	}
	if math.IsNaN(sum) || sum < 0 || sum > 1<<53 {
		return nil
	}
	n := int64(math.Round(sum))
	return &n
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

func histogram(family *dto.MetricFamily) (count int64, sum float64) {
	for _, m := range family.GetMetric() {
		count += int64(min(m.GetHistogram().GetSampleCount(), 1<<53))
		if s := m.GetHistogram().GetSampleSum(); !math.IsNaN(s) {
			sum += s
		}
	}
	return count, sum
}

// speeches are the dialects that a page is recognised by, where nobody said of which kind the engine is.
func speeches() []dialect { return []dialect{vllmSpeech, sglangSpeech, simSpeech} }

// recognise finds the families of a page; ok is false where it is nobody's.
func recognise(page map[string]*dto.MetricFamily) (f families, ok bool) {
	for _, d := range speeches() {
		if page[d.families.prompt] != nil {
			return d.families, true
		}
	}
	return families{}, false
}
