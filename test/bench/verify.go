package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// numbers are what a metrics or statistics page tells, by the whole name with its labels.
type numbers map[string]float64

// sum of all series of a metric.
func (n numbers) sum(metric string) (sum float64) {
	for name, v := range n {
		if name == metric || strings.HasPrefix(name, metric+"{") {
			sum += v
		}
	}
	return sum
}

// page reads lines of "name value"; sep is what parts the two.
func page(url, sep string) (numbers, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s %w", url, resp.Status, err)
	}
	n := numbers{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndex(line, sep); at > 0 {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at+len(sep):]), 64); err == nil {
				n[line[:at]] = v
			}
		}
	}
	return n, nil
}

func (l *loaded) doorMetrics() (numbers, error) { return page("http://"+l.ops+"/metrics", " ") }

// forbidden are Envoy's counters that must not move under a load which the pair can take: overflows are silent losses.
var forbidden = []string{
	"upstream_rq_pending_overflow", "upstream_rq_pending_failure_eject", "upstream_rq_retry_overflow", "upstream_rq_retry",
	"upstream_cx_overflow", "upstream_cx_pool_overflow", "upstream_cx_connect_fail", "upstream_rq_timeout", "upstream_rq_5xx",
	"failure_mode_allowed", "keepalive_timeout", "logs_dropped", "ext_authz.error", "ext_authz.timeout", "ext_authz.denied", "streams_failed", "message_timeouts",
	"downstream_rq_5xx", "downstream_rq_4xx", "downstream_rq_overload_close", "downstream_cx_overload_disable_keepalive",
}

func (l *loaded) envoyStats() (numbers, error) {
	return page("http://"+l.admin+"/stats?usedonly", ": ")
}

// verify asks Envoy, the door and the journals. What Envoy counted before the load, while everything started, is no matter.
func (l *loaded) verify(before numbers) error {
	stats, err := l.envoyStats()
	if err != nil {
		return err
	}
	var moved []string
	for name, v := range stats {
		if v -= before[name]; v != 0 && slices.ContainsFunc(forbidden, func(end string) bool { return matches(name, end) }) {
			moved = append(moved, fmt.Sprintf("%s=%v", name, v))
		}
	}
	slices.Sort(moved)
	l.promise(len(moved) == 0, "Envoy counts %s", strings.Join(moved, ", "))
	m, err := l.doorMetrics()
	if err != nil {
		return err
	}
	l.promise(m.sum("spokegate_usage_lost_total") == 0, "%v records are lost", m.sum("spokegate_usage_lost_total"))
	return l.journals()
}

// matches a statistic by its last words. A filter's name stands between "ext_authz" and the counter.
func matches(name, end string) bool {
	filter, counter, parted := strings.Cut(end, ".")
	if !parted {
		return strings.HasSuffix(name, "."+end)
	}
	return strings.Contains(name, filter) && strings.HasSuffix(name, "."+counter)
}

// journals must hold one record of each kind for each request, all of them whole.
func (l *loaded) journals() error {
	kinds := map[string]map[string]int{}
	_, err := usage.Read(filepath.Join(l.dir, "spool"), func(r *usagev1.Record) error {
		if r.Kind == usage.KindCheckpoint || r.Kind == usage.KindEngine || r.Kind == usage.KindProbe {
			return nil // about no request of ours
		}
		if kinds[r.Kind] == nil {
			kinds[r.Kind] = map[string]int{}
		}
		kinds[r.Kind][r.Admission]++
		if r.Kind != usage.KindAdmitted {
			l.promise(r.Outcome == usage.OutcomeComplete && r.CountedFrom == usage.CountedEngine && len(r.Anomalies) == 0,
				"%s of %s: %s, counted from %s, %v", r.Kind, r.Admission, r.Outcome, r.CountedFrom, r.Anomalies)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, kind := range []string{usage.KindAdmitted, usage.KindServed, usage.KindUsage} {
		l.promise(len(kinds[kind]) == int(l.sent.Load()), "%d requests, and %d admissions with a record %s", l.sent.Load(), len(kinds[kind]), kind)
		for admission, n := range kinds[kind] {
			l.promise(n == 1 && kinds[usage.KindAdmitted][admission] == 1, "%d records %s of %s", n, kind, admission)
		}
	}
	return nil
}
