package usage

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Options of a spool. The zero value is the default.
type Options struct {
	// WriteWindow is how long a record waits for others to be written with (5 ms): what a killed process loses. SyncWindow is how long
	// they wait for others to be fsynced with (25 ms): what a loss of power takes.
	WriteWindow, SyncWindow time.Duration
	// SegmentBytes is the size from which on the next segment is begun (64 MiB).
	SegmentBytes int64
	// MaxBytes is what the source's folder may take on disk, earlier epochs included (1 GiB). Beyond, records are lost.
	MaxBytes int64
	// Queue is how many records may wait for the disk (65,536, about 40 MB when full). Beyond, records are lost.
	Queue int
	// Checkpoint is how often the source signs what it has journaled, beside at its end; each record then names the digest of
	// the one before. 0: never.
	Checkpoint time.Duration
	// Registerer takes the metrics of one spool; nil: none.
	Registerer prometheus.Registerer
	// Log gets a line when the disk begins to fail and when it has recovered; nil: none.
	Log *slog.Logger

	// For tests.
	disk    disk          // a failing one
	wait    time.Duration // the first one after a failure; doubles up to waitMax
	waitMax time.Duration
	measure time.Duration // how often a full folder is measured again
}

const (
	retryFirst = 10 * time.Millisecond
	retryMax   = time.Second
	// closeGrace is how long Close waits, its context being done, for a writer that may hang in the disk.
	closeGrace = time.Second
)

func (o Options) withDefaults() Options {
	setDefault(&o.WriteWindow, 5*time.Millisecond)
	setDefault(&o.SyncWindow, 25*time.Millisecond)
	setDefault(&o.SegmentBytes, 64<<20)
	setDefault(&o.MaxBytes, 1<<30)
	setDefault(&o.Queue, 65536)
	setDefault(&o.wait, retryFirst)
	setDefault(&o.waitMax, retryMax)
	setDefault(&o.measure, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.disk == nil {
		o.disk = osDisk{}
	}
	return o
}

func setDefault[N ~int | ~int64](n *N, to N) {
	if *n <= 0 {
		*n = to
	}
}

// Stats of a spool. Appended = Synced + Lost + those still on their way. Checkpoints count in none of them.
type Stats struct {
	Appended, Synced, Lost uint64
	Epoch                  uint64
	Bytes                  int64  // on disk, all epochs of the source
	Err                    string // what the disk says while it fails; empty: it does not
}

// Spool is the journal of one source. Its methods are safe for concurrent use.
type Spool struct {
	opts    Options
	metrics *metrics
	queue   *queue
	lock    *os.File

	// Only the writing goroutine touches these.
	writer   *writer
	batch    batch
	measured time.Time
	notary   *notary // nil: there are no checkpoints

	appended, synced, lost atomic.Uint64
	bytes                  atomic.Int64
	failure                atomic.Pointer[string]

	closing sync.Once
	giveUp  chan struct{} // closed: stop trying
	done    chan struct{} // closed: the writer has returned
}

// Open starts a new epoch of source (such as door/main) under dir. The epoch is the time in seconds, or one more than the
// highest that is there: it increases also when the disk was lost in between. Two processes cannot open one source.
//
// An error means that the journal cannot be kept at all: a bad name, a folder that cannot be made or read, or one in use. A
// disk that is full or read-only while the folder is there is no error here: its records wait, and are counted when lost.
func Open(dir, source string, opts Options) (*Spool, error) {
	opts = opts.withDefaults()
	folder, err := folderOf(source)
	if err != nil {
		return nil, err
	}
	w := &writer{
		disk: opts.disk, dir: filepath.Join(dir, folder), source: source,
		segmentBytes: opts.SegmentBytes, maxBytes: opts.MaxBytes, next: 1,
	}
	lock, err := claim(w.dir)
	if err != nil {
		return nil, fmt.Errorf("journal of %s: %w", source, err)
	}
	list, err := segments(w.dir)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("journal of %s: %w", source, err)
	}
	w.epoch = nextEpoch(list, time.Now())
	w.measure()
	s := &Spool{
		opts: opts, metrics: newMetrics(opts.Registerer), queue: newQueue(opts.Queue), lock: lock, writer: w,
		batch: batch{kinds: map[string]int{}}, giveUp: make(chan struct{}), done: make(chan struct{}),
	}
	if opts.Checkpoint > 0 {
		w.chain = true
		s.notary = newNotary(w.dir, source, opts.Checkpoint, list, opts.Log)
	}
	s.report()
	go s.run()
	return s, nil
}

// nextEpoch is greater than every epoch in the list.
func nextEpoch(list []segment, now time.Time) uint64 {
	epoch := uint64(max(now.Unix(), 1))
	if n := len(list); n > 0 {
		epoch = max(epoch, list[n-1].epoch+1)
	}
	return epoch
}

// Append hands r over to the writer and returns at once. The spool owns r from here on and sets its source, epoch and
// sequence. What cannot be kept is counted as lost.
func (s *Spool) Append(r *usagev1.Record) {
	s.appended.Add(1)
	if reason := s.queue.put(r); reason != "" {
		s.lose(reason, 1)
	}
}

// Flush returns nil when all that was appended before, and not counted as lost by then, is on disk. It returns ErrLost if
// some of it had to be given up meanwhile. While the disk fails it waits, as long as ctx lets it.
func (s *Spool) Flush(ctx context.Context) error { return s.queue.flush(ctx) }

// Close brings everything to disk and stops the writer. When ctx is done first, the rest is given up and counted as lost
// (some of it may be on disk all the same). It is safe to call more than once.
func (s *Spool) Close(ctx context.Context) error {
	s.queue.close()
	err := s.queue.flush(ctx)
	s.closing.Do(func() {
		if err != nil {
			close(s.giveUp)
		}
		timer := time.NewTimer(closeGrace)
		defer timer.Stop()
		select {
		case <-s.done:
		case <-timer.C:
		}
	})
	return err
}

// Stats says how the journal is.
func (s *Spool) Stats() Stats {
	st := Stats{
		Synced: s.synced.Load(), Lost: s.lost.Load(), Appended: s.appended.Load(),
		Epoch: s.writer.epoch, Bytes: s.bytes.Load(),
	}
	if e := s.failure.Load(); e != nil {
		st.Err = *e
	}
	return st
}

func (s *Spool) lose(reason string, n int) {
	s.lost.Add(uint64(n))
	s.metrics.lost.WithLabelValues(reason).Add(float64(n))
}
