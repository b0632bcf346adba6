package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/usage"
)

// journal is a role's spool and, where there is a Kafka, what ships it there.
type journal struct {
	spool   *usage.Spool
	forward *usage.Forwarder // nil: records stay on this disk
	stop    func()           // ends what ships, and waits for it
}

func kafkaFlag(f *flag.FlagSet, brokers *string) {
	f.StringVar(brokers, "kafka", os.Getenv("SPOKEGATE_KAFKA"), "`host:port` of Kafka's brokers, comma-separated, that records are shipped to; empty: they stay on this disk ($SPOKEGATE_KAFKA)")
}

func openJournal(dir, source, kafka string, reg *prometheus.Registry, log *slog.Logger) (*journal, error) {
	folder := filepath.Join(dir, "spool")
	spool, err := usage.Open(folder, source, usage.Options{Registerer: reg, Log: log})
	if err != nil {
		return nil, err
	}
	j := &journal{spool: spool}
	if kafka == "" {
		return j, nil
	}
	j.forward, err = usage.NewForwarder(usage.ForwarderConfig{Dir: folder, Source: source, Brokers: strings.Split(kafka, ","), Registerer: reg, Log: log})
	if err != nil {
		return nil, err
	}
	// It outlives the role's other parts, so that what they journal at their end is shipped too.
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { j.forward.Run(ctx) })
	j.stop = func() { cancel(); running.Wait() }
	return j, nil
}

// close writes what was appended and ships what it can until ctx is done; the rest is shipped after the next start.
func (j *journal) close(ctx context.Context) error {
	err := j.spool.Close(ctx)
	if j.forward == nil {
		return err
	}
	_ = j.forward.Drain(ctx)
	j.stop()
	return err
}

// note says what a reader of /readyz should know; responses go on all the same.
func (j *journal) note(r *report) {
	if s := j.spool.Stats(); s.Lost > 0 || s.Err != "" {
		r.note("spool: %d records lost: %s", s.Lost, s.Err)
	}
	if j.forward == nil {
		return
	}
	s := j.forward.Status()
	if s.Err != "" {
		r.note("kafka: not shipping since %s, %d bytes wait on disk: %s", s.Since.Format(time.RFC3339), s.LagBytes, s.Err)
	} else {
		r.note("kafka: %d records shipped, %d bytes wait", s.Shipped, s.LagBytes)
	}
}
