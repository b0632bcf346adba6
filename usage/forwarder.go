package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Forwarder ships the journal of one source to Kafka, see the package's documentation for what it promises.
type Forwarder struct {
	cfg      ForwarderConfig
	dir      string
	log      *slog.Logger
	broker   broker
	metrics  *shipMetrics
	asides   *asides
	progress progress

	// Only the goroutine of Run touches these.
	room   int // bytes of the next requests: less when Kafka is slow
	saved  position
	tidied time.Time
	kept   time.Time
	warned time.Time
}

// NewForwarder checks the configuration. Nothing is read or sent before Run.
func NewForwarder(cfg ForwarderConfig) (*Forwarder, error) {
	folder, err := folderOf(cfg.Source)
	if err != nil {
		return nil, err
	}
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("no Kafka broker is named")
	}
	for _, b := range cfg.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return nil, fmt.Errorf("broker %q of Kafka: host:port is expected", b)
		}
	}
	cfg = cfg.withDefaults()
	f := &Forwarder{
		cfg: cfg, dir: filepath.Join(cfg.Dir, folder), log: cfg.Log.With("source", cfg.Source), broker: cfg.broker,
		metrics: newShipMetrics(cfg.Registerer), room: cfg.requestBytes,
	}
	if f.broker == nil {
		if f.broker, err = newCluster(&cfg); err != nil {
			return nil, err
		}
	}
	if s := cfg.Security; s.SASL != "" && !s.TLS {
		f.log.Warn("records and the proof of the password go to Kafka without TLS: whoever listens reads them, and may guess the password")
	}
	f.asides = &asides{dir: f.dir, max: cfg.AsideBytes}
	f.progress.changed = make(chan struct{})
	return f, nil
}

// Run ships until ctx is done and returns then, having saved up to where all is acknowledged. A folder that cannot be had,
// because the disk is full or another forwarder is at it, is like a Kafka that is away: Status tells, and it is tried again.
func (f *Forwarder) Run(ctx context.Context) {
	defer func() { f.metrics.lag.Sub(float64(f.progress.setLag(0))) }() // no longer this process's to watch
	lock := f.claim(ctx)
	if lock == nil {
		return
	}
	defer lock.Close()
	defer f.broker.reset()
	var err error
	f.saved, err = loadPosition(f.dir)
	if err != nil {
		f.log.Warn("where shipping had come to cannot be read; all that is there is shipped again", "err", err)
	}
	f.progress.start(f.saved)
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	empty, full := make(chan *chunk, 2), make(chan *chunk)
	for range cap(empty) {
		empty <- newChunk(f.cfg.chunkBytes)
	}
	reading.Go(func() { f.read(ctx, f.saved, empty, full) })
	f.run(ctx, empty, full)
}

// claim returns the lock on the folder, or nil when ctx is done before it can be had.
func (f *Forwarder) claim(ctx context.Context) *os.File {
	for wait := f.cfg.wait; ; wait = min(2*wait, f.cfg.waitMax) {
		lock, err := claimShipping(f.dir)
		if err == nil {
			f.recovered()
			return lock
		}
		at, _ := loadPosition(f.dir) // only to measure: it is loaded again, and told, under the lock
		f.progress.start(at)
		if list, err := segments(f.dir); err == nil {
			f.measure(list)
		}
		f.failing(err, time.Now())
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (f *Forwarder) run(ctx context.Context, empty chan<- *chunk, full <-chan *chunk) {
	tick := time.NewTicker(f.cfg.tidy)
	defer tick.Stop()
	for {
		select {
		case c := <-full:
			empty <- f.ship(ctx, c)
		case <-tick.C:
		case <-ctx.Done():
			f.save()
			return
		}
		f.tidy(time.Now())
	}
}

// read fills chunks, one ahead of the one being shipped.
func (f *Forwarder) read(ctx context.Context, at position, empty <-chan *chunk, full chan<- *chunk) {
	cursor := cursor{dir: f.dir, at: at}
	tick := time.NewTicker(f.cfg.poll)
	defer tick.Stop()
	var failed bool
	for {
		var c *chunk
		select {
		case c = <-empty:
		case <-ctx.Done():
			return
		}
		for some := false; !some; {
			pass := f.progress.begin()
			var err error
			if some, err = cursor.next(c); err != nil && !failed {
				f.log.Error("the usage journal cannot be read, and so not be shipped", "err", err)
			}
			failed = err != nil
			if err == nil && !some {
				f.progress.nothingMore(pass)
			}
			if some {
				f.progress.readTo(cursor.at)
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		select {
		case full <- c:
		case <-ctx.Done():
			return
		}
	}
}

// Drain returns nil when all that was on disk when it was called has been acknowledged. Run must be running.
func (f *Forwarder) Drain(ctx context.Context) error { return f.progress.drained(ctx) }

// save keeps up to where all is acknowledged. Should it fail, nothing is lost: the records since are shipped once more.
func (f *Forwarder) save() {
	at := f.progress.position()
	if at == f.saved {
		return
	}
	if err := f.cfg.save(f.dir, at); err != nil {
		f.log.Warn("where shipping has come to cannot be saved", "err", err)
		return
	}
	f.saved = at
}

// tidy does what has to be done now and then.
func (f *Forwarder) tidy(now time.Time) {
	if now.Sub(f.tidied) < f.cfg.tidy {
		return
	}
	f.tidied = now
	turned := f.saved.Epoch != f.progress.position().Epoch || f.saved.Segment != f.progress.position().Segment
	f.save()
	list, err := segments(f.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	f.measure(list)
	if turned || now.Sub(f.kept) >= time.Minute {
		f.kept = now
		f.keep(list, now)
	}
}

func (f *Forwarder) measure(list []segment) {
	lag := f.progress.lagIn(list)
	f.metrics.lag.Add(float64(lag - f.progress.setLag(lag)))
}

// keep removes the oldest segments that were shipped whole, but for those that shall stay a while.
func (f *Forwarder) keep(list []segment, now time.Time) {
	at := f.progress.position()
	var kept int64
	for i := len(list) - 1; i >= 0; i-- {
		s := list[i]
		if at.compare(s) <= 0 {
			continue
		}
		kept += s.size
		if kept <= f.cfg.KeepBytes && now.Sub(s.modified) <= f.cfg.KeepFor {
			continue
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			f.log.Warn("a shipped segment cannot be removed", "segment", s.path, "err", err)
			continue
		}
		f.log.Debug("a shipped segment is removed", "segment", s.path)
	}
}
