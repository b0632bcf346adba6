package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// runJournal is a spool that this command writes: of repairs, or of what it found. It is opened with the first record: who has
// nothing to repair leaves no trace.
type runJournal struct {
	dir, source string
	kafka       kafkaFlags // to ship to; no brokers: nowhere

	spool   *usage.Spool
	written int
}

// runBatch is how many records may wait for the disk, well below what a spool's queue takes.
const runBatch = 1000

func (j *runJournal) write(ctx context.Context, r *usagev1.Record) error {
	if j.spool == nil {
		spool, err := usage.Open(j.dir, j.source, usage.Options{Checkpoint: time.Minute})
		if err != nil {
			return err
		}
		j.spool = spool
	}
	j.spool.Append(r)
	if j.written++; j.written%runBatch == 0 {
		return j.synced(ctx)
	}
	return nil
}

// synced returns nil when all records are on disk.
func (j *runJournal) synced(ctx context.Context) error {
	err := j.spool.Flush(ctx)
	if st := j.spool.Stats(); err == nil && st.Lost > 0 {
		err = fmt.Errorf("%d could not be kept", st.Lost)
	}
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", j.source, j.dir, err)
	}
	return nil
}

// close brings the records to disk, and to Kafka where there is one. It is safe to call more than once.
func (j *runJournal) close(ctx context.Context) error {
	if j.spool == nil {
		return nil
	}
	err := j.synced(ctx)
	_ = j.spool.Close(ctx) // what it says, synced has said
	j.spool = nil
	if err != nil || j.kafka.brokers == "" {
		return err
	}
	return j.ship(ctx)
}

// shipPatience is how long Kafka, which was read a moment ago, may take to take the records.
const shipPatience = time.Minute

func (j *runJournal) ship(ctx context.Context) error {
	f, err := usage.NewForwarder(usage.ForwarderConfig{Dir: j.dir, Source: j.source, Brokers: listed(j.kafka.brokers), Security: j.kafka.security})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shipPatience)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f.Run(run) })
	err = f.Drain(ctx)
	stop()
	running.Wait()
	if err != nil {
		return fmt.Errorf("%d records of %s are on disk in %s and not in Kafka yet; the next run that writes as %[2]s ships them: %[4]s", j.written, j.source, j.dir, f.Status().Err)
	}
	return nil
}

// progress tells on a terminal, or now and then in a log, how far a long run has come.
type progress struct {
	out      *os.File
	terminal bool
	every    time.Duration
	begun    time.Time
	told     time.Time
	line     bool // one is on the terminal
}

func newProgress(out *os.File) *progress {
	p := &progress{out: out, every: 10 * time.Second, begun: time.Now(), told: time.Now()}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		p.terminal, p.every = true, 500*time.Millisecond
	}
	return p
}

// of tells how much of how much is done.
func (p *progress) of(done string) func(done, total int64) {
	return func(n, total int64) {
		if time.Since(p.told) < p.every {
			return
		}
		p.told = time.Now()
		begin, end := "", "\n"
		if p.terminal {
			begin, end, p.line = "\r\x1b[K", "", true
		}
		fmt.Fprintf(p.out, "%s%s %d %% in %v%s", begin, done, 100*n/max(total, 1), time.Since(p.begun).Round(time.Second), end)
	}
}

// end takes the line off the terminal.
func (p *progress) end() {
	if p.line {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
