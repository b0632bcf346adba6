package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spokegate/spokegate/enginemetrics"
)

// reader reads an engine's counters, and those of its GPUs.
type reader struct {
	base   *url.URL
	via    http.RoundTripper
	speech dialect
	gpu    *gpuReader // nil: none
}

// readResult is one reading.
type readResult struct {
	counters
	err     error
	settled bool   // two in a row were the same
	entered uint64 // how many requests had come when it was asked for
	gpu     []string
}

// read reads once, or until two readings in a row have counted the same tokens.
func (r *reader) read(ctx context.Context, settle bool) readResult {
	var result readResult
	result.counters, result.err = r.once(ctx)
	if settle {
		within, cancel := context.WithTimeout(ctx, settleMost)
		for !errors.Is(result.err, errNoMetrics) && !result.settled && sleep(within, settleEvery) {
			again, err := r.once(ctx)
			result.settled = err == nil && result.err == nil && again.SameTokens(result.counters) && again.Still()
			result.counters, result.err = again, err
		}
		cancel()
	}
	if errors.Is(result.err, errNoMetrics) {
		result.err = nil
	}
	if r.gpu != nil {
		result.gpu = r.gpu.read(ctx)
	}
	return result
}

func (r *reader) once(ctx context.Context) (counters, error) {
	path, families := r.speech.metrics, r.speech.families
	if path == "" && !r.speech.anyKind {
		return counters{}, errNoMetrics
	}
	if r.speech.anyKind {
		path = "/metrics"
	}
	page, err := scrape(ctx, r.base, r.via, path, enginemetrics.Known)
	if err != nil {
		return counters{}, err
	}
	if r.speech.anyKind {
		found, ok := enginemetrics.Recognise(page)
		if !ok {
			return counters{}, errNoMetrics
		}
		families = found
	}
	return families.Read(page), nil
}

// gpuReader reads what a DCGM exporter tells of this engine's GPUs.
type gpuReader struct {
	at   *url.URL
	via  http.RoundTripper
	mine []string // indices or UUIDs; empty: all of the exporter
	past map[string]float64
}

func newGPUReader(at *url.URL) *gpuReader {
	g := &gpuReader{at: at, via: newProbe(nil), past: map[string]float64{}}
	for name := range strings.SplitSeq(os.Getenv("CUDA_VISIBLE_DEVICES"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			g.mine = append(g.mine, name)
		}
	}
	return g
}

// gpuFaults are the exporter's fields, and what they mean. A value that stands counts, or only one that grows.
var gpuFaults = []struct {
	field string
	grows bool
	words string
}{
	{"DCGM_FI_DEV_XID_ERRORS", false, "its last error was XID %.0f"},
	{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", false, "%.0f memory errors that could not be corrected"},
	{"DCGM_FI_DEV_ROW_REMAP_FAILURE", false, "memory rows could not be remapped (%.0f)"},
	{"DCGM_FI_DEV_THERMAL_VIOLATION", true, "slowed by heat"},
	{"DCGM_FI_DEV_POWER_VIOLATION", true, "slowed by its power limit"},
}

var gpuNames = func() enginemetrics.Names {
	names := enginemetrics.Names{}
	for _, f := range gpuFaults {
		names[f.field] = true
	}
	return names
}()

// read tells what is wrong; an exporter that does not answer is wrong too.
func (g *gpuReader) read(ctx context.Context) (causes []string) {
	base := *g.at
	path := base.Path
	base.Path = ""
	page, err := scrape(ctx, &base, g.via, path, gpuNames)
	if err != nil {
		return []string{fmt.Sprintf("%s: its exporter cannot be read: %v", gpuTrouble, err)}
	}
	for _, fault := range gpuFaults {
		for _, m := range page[fault.field] {
			id, mine := g.of(m)
			value := m.Value
			key := fault.field + id
			before, known := g.past[key]
			g.past[key] = value
			if !mine || value <= 0 || fault.grows && (!known || value <= before) {
				continue
			}
			text := fault.words
			if strings.Contains(text, "%") {
				text = fmt.Sprintf(text, value)
			}
			causes = append(causes, fmt.Sprintf("%s: GPU %s %s", gpuTrouble, id, text))
		}
	}
	return causes
}

func (g *gpuReader) of(m enginemetrics.Sample) (id string, mine bool) {
	mine = len(g.mine) == 0
	for _, l := range m.Labels {
		switch l.Name {
		case "gpu":
			id = l.Value
		case "UUID":
		default:
			continue
		}
		mine = mine || slices.Contains(g.mine, l.Value)
	}
	return id, mine
}
