package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spokegate/spokegate/usage"
)

// Bounds of the journal of refusals. It waits longer for company than others, so that a flood costs their disk one fsync a
// second. Where nobody ships it the oldest go: a minute of the worst flood is less than what is left above rejectedPruned.
const (
	rejectedBytes   = 64 << 20
	rejectedPruned  = 32 << 20
	rejectedShipped = 16 << 20 // that stay on this disk for whoever reads it here
	rejectedSegment = 4 << 20
	rejectedQueue   = 8192 // records
	rejectedAside   = 4 << 20
	rejectedWindow  = time.Second
	pruneEvery      = 10 * time.Second
)

// rejections journal what the door refuses, apart from what a bill depends on: a spool of its own, and its own way to Kafka.
type rejections struct {
	*usage.Refusals
	journal *journal
	dir     string
	source  string
	log     *slog.Logger
}

func openRejections(d doorFlags, reg *prometheus.Registry, log *slog.Logger) (*rejections, error) {
	r := &rejections{dir: spoolDir(d.dir), source: usage.RejectedSource(d.name), log: log}
	keep := usage.Options{WriteWindow: rejectedWindow, SyncWindow: time.Nanosecond, // a record that is written is synced
		SegmentBytes: rejectedSegment, MaxBytes: rejectedBytes, Queue: rejectedQueue, Log: log}
	ship := usage.ForwarderConfig{Dir: r.dir, Source: r.source, KeepBytes: rejectedShipped, AsideBytes: rejectedAside, Log: log}
	var err error
	if r.journal, err = startJournal(d.kafka, keep, ship); err != nil {
		return nil, err
	}
	r.Refusals = usage.NewRefusals(usage.RefusalsConfig{Journal: r.journal.spool, Source: r.source, Epoch: r.journal.spool.Stats().Epoch, Spoke: d.spoke})
	r.measure(reg)
	return r, nil
}

func (r *rejections) measure(reg *prometheus.Registry) {
	with := promauto.With(reg)
	with.NewCounterFunc(prometheus.CounterOpts{
		Name: "spokegate_rejected_records_total", Help: "Records of refusals that are on disk. One may stand for many.",
	}, func() float64 { return float64(r.journal.spool.Stats().Synced) })
	with.NewCounterFunc(prometheus.CounterOpts{
		Name: "spokegate_rejected_lost_total", Help: "Records of refusals that could not be kept. One may stand for many.",
	}, func() float64 { return float64(r.journal.spool.Stats().Lost) })
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_rejected_spool_bytes", Help: "Bytes of the journal of refusals on disk.",
	}, func() float64 { return float64(r.journal.spool.Stats().Bytes) })
	if r.journal.forward == nil {
		return
	}
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_rejected_lag_bytes", Help: "Bytes of the journal of refusals that Kafka has not acknowledged yet.",
	}, func() float64 { return float64(r.journal.forward.Status().LagBytes) })
}

// run writes what was folded, second by second, and makes room where nobody ships, until ctx is done.
func (r *rejections) run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { _ = r.Refusals.Run(ctx) })
	if r.journal.forward == nil {
		parts.Go(func() { r.prune(ctx) })
	}
	parts.Wait()
	return nil
}

func (r *rejections) prune(ctx context.Context) {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		if err := usage.Prune(r.dir, r.source, rejectedPruned); err != nil {
			r.log.Warn("old refusals cannot be removed; new ones are lost when their journal is full", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *rejections) close(ctx context.Context) error {
	r.Refusals.Close()
	if err := r.journal.close(ctx); err != nil {
		return fmt.Errorf("the journal of refusals: %w", err)
	}
	return nil
}

// note says what a reader of /readyz should know.
func (r *rejections) note(to *report) {
	if s := r.journal.spool.Stats(); s.Lost > 0 || s.Err != "" {
		to.note("refusals: %d records lost: %s", s.Lost, s.Err)
	}
	if r.journal.forward == nil {
		return
	}
	if s := r.journal.forward.Status(); s.Err != "" {
		to.note("kafka: refusals are not shipped since %s: %s", s.Since.Format(time.RFC3339), s.Err)
	}
}
