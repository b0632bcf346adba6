// Package scrape looks after workers that have no shim: whether their engines answer, and what these say of their load.
//
// It promises that a worker whose metrics are late, away or unreadable stays as pickable as it was, and only its load is unknown
// then; that one which does not answer at all fails after a few looks and comes back by itself; and that looking at many idle
// workers costs little, whatever they answer. It does not find workers (see fleet/file).
package scrape

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/fleet"
)

// Target is a worker of the fleet to look after.
type Target struct {
	Worker fleet.Worker
	// Metrics is the path of its Prometheus text; empty: that of its kind of engine.
	Metrics string
}

// Config is what a Scraper needs.
type Config struct {
	Fleet      *fleet.Fleet
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Scraper looks after targets, each on a goroutine of its own.
type Scraper struct {
	Config
	metrics *metrics
	client  *http.Transport
	reading chan struct{} // pages that are read at one time
	timeout time.Duration // of one answer
	unit    time.Duration // the quickest pace; a second, but for tests

	watched map[string]*watch // by name; of Watch's caller alone
}

const (
	// answerMost is how long an answer may take: an engine under load is slow to answer even this.
	answerMost = 10 * time.Second
	// atOnce pages are read at one time.
	atOnce = 32
)

// New makes a Scraper that looks after nobody yet.
func New(c Config) *Scraper {
	return &Scraper{
		Config: c, metrics: newMetrics(c.Registerer), reading: make(chan struct{}, atOnce), timeout: answerMost, unit: time.Second,
		client: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			DisableCompression:     true, // it would cost both sides more than the bytes
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        4 * time.Second, // uvicorn, which most engines run in, closes after 5
			MaxResponseHeaderBytes: 64 << 10,
		},
		watched: map[string]*watch{},
	}
}

// watch is one target's goroutine.
type watch struct {
	Target
	cancel context.CancelFunc
	done   chan struct{}
}

// Watch looks after these targets until ctx is done, and after no other from now on: when it returns, nothing is said any more of
// those that are not among them. Whoever called it calls it once more, without any, to end. Not safe for concurrent use.
func (s *Scraper) Watch(ctx context.Context, targets []Target) {
	want := map[string]Target{}
	for _, t := range targets {
		want[t.Worker.Name] = t
	}
	var ended []*watch
	for name, w := range s.watched {
		if t, stays := want[name]; !stays || t != w.Target {
			w.cancel()
			ended = append(ended, w)
			delete(s.watched, name)
		}
	}
	for _, w := range ended {
		<-w.done
	}
	for name, t := range want {
		if s.watched[name] != nil {
			continue
		}
		own, cancel := context.WithCancel(ctx)
		w := &watch{t, cancel, make(chan struct{})}
		s.watched[name] = w
		go func() {
			defer close(w.done)
			s.follow(own, t, len(targets))
		}()
	}
	if len(targets) == 0 {
		s.client.CloseIdleConnections()
	}
}

// follow looks again and again. among is how many targets there were when it began: enough to set its pace by.
func (s *Scraper) follow(ctx context.Context, t Target, among int) {
	j := judge{starting: true}
	log := s.Log.With("worker", t.Worker.Name, "endpoint", t.Worker.Endpoint, "addr", t.Worker.Addr)
	for wait := spread(s.unit, among, rand.Float64()); pause(ctx, wait); wait = j.pace(s.unit, among, rand.Float64()) {
		f := s.look(ctx, t)
		if ctx.Err() != nil {
			return
		}
		s.tell(t, &j, f, log)
	}
}

// tell says what a look has found to the fleet.
func (s *Scraper) tell(t Target, j *judge, f found, log *slog.Logger) {
	before := j.problem
	v := j.take(f)
	if before == "" && j.problem != "" {
		log.Warn("the engine's metrics cannot be read, so its load is not known", "error", j.problem)
	}
	if f.answered { // what it said last of its cache holds on where its metrics are away
		s.Fleet.Renew(t.Worker.Name, epoch(t.Worker.Epoch, v.epoch), cmp.Or(j.last.BlockSize, t.Worker.BlockSize), max(t.Worker.Blocks, j.last.Blocks))
	}
	s.Fleet.Report(t.Worker.Name, v.status)
	if s.Fleet.Update(t.Worker.Name, v.state) {
		log.Info("worker changed", "state", v.state.String(), "reason", v.status.Reason)
	}
}

// epoch is a run of an engine, within what was known of its runs when it was found.
func epoch(found, run string) string {
	if found == "" {
		return run
	}
	return found + "." + run
}

// pause is false when ctx is done before the time is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drain reads a little of what is left, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}
