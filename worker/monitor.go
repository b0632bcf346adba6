package worker

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/usage"
)

// Watch says how closely an engine is looked at. A zero field has its default.
type Watch struct {
	// Every is how often its metrics are read: 2 s.
	Every time.Duration
	// Idle is how long it may stand without a token before it is asked for one: 1 min. Negative: it is not.
	Idle time.Duration
	// Hung is how long no token may come while requests wait, before a probe must be answered within the same time; and how
	// long any probe may take: 1 min.
	Hung time.Duration
	// Journal is how often its counters are journaled at most, while nothing runs: 1 min.
	Journal time.Duration
	// GPU is the URL of a DCGM exporter's metrics; nil: none.
	GPU *url.URL

	again time.Duration // between probes that are not answered; for tests, 0: probeAgain
}

func (w *Watch) setDefaults() {
	setDefault(&w.Every, 2*time.Second)
	if w.Idle == 0 {
		w.Idle = time.Minute
	}
	setDefault(&w.Hung, time.Minute)
	setDefault(&w.Journal, time.Minute)
	setDefault(&w.again, probeAgain)
}

// probeFails in a row make an engine failed, probeAgain apart.
const (
	probeFails = 3
	probeAgain = 2 * time.Second
)

// speaker is an engine that the shim understands: it is probed, counted and watched.
type speaker interface{ speaks() dialect }

// restarter is an engine that can be given up and started again.
type restarter interface{ restart(reason string) }

// renewer is an engine that somebody else runs: it learns that it was started anew.
type renewer interface{ renew() }

// phase of a run, as the monitor sees it.
type phaseOf uint8

const (
	down    phaseOf = iota // not up by its own word
	proving                // up, and has not generated yet
	trusted                // generates
	doubted                // up by its own word, and not believed
)

// monitor stands between an engine's own word and what the worker says of it: ready is one that has generated. It journals
// the probes and the counters of each run, and finds what the engine does not say.
//
// One goroutine, run, holds all of it. What takes time is done beside it, at most one probe and one reading at once.
type monitor struct {
	watch   Watch
	books   books
	prober  prober
	reader  reader
	engine  Engine
	states  *states
	traffic *traffic
	metrics *engineMetrics
	log     *slog.Logger

	lives  inbox
	ending chan chan struct{} // asks for the last words

	life     Life // the engine's own word
	phase    phaseOf
	began    time.Time // of the run
	pressure pressure
	last     reading // of the counters in this run
	booked   reading // those that were journaled last

	probe    job[probeResult]
	probedAt time.Time
	fails    int  // probes in a row that were not answered
	proved   bool // a probe was answered; the first reading is awaited
	doubt    string
	read     job[readResult]
	settling bool      // the reading that runs waits until the counters stand: no probe may begin
	moved    time.Time // when the counters grew last
}

// run watches until ctx ends.
func (m *monitor) run(ctx context.Context) {
	tick := time.NewTicker(m.watch.Every)
	defer tick.Stop()
	defer m.stopJobs()
	for {
		select {
		case <-m.lives.filled:
			for _, l := range m.lives.take() {
				m.take(l)
			}
		case r := <-m.probe.done:
			m.probe.end()
			m.probed(r, time.Now())
		case r := <-m.read.done:
			m.read.end()
			m.readNow(r, time.Now())
		case <-tick.C:
		case done := <-m.ending:
			m.lastWords(ctx)
			close(done)
			continue
		case <-ctx.Done():
			return
		}
		m.advance(ctx, time.Now())
	}
}

// take notes the engine's own word.
func (m *monitor) take(l Life) {
	anew := l.Epoch != m.life.Epoch || l.State != workerv1.State_STATE_READY
	if anew && m.phase != down {
		m.stopJobs()
		if m.phase != proving {
			m.books.engine(usage.MomentLost, m.last.counters)
		}
		m.phase = down
	}
	m.life = l
	switch {
	case l.State != workerv1.State_STATE_READY:
		if l.State == workerv1.State_STATE_FAILED {
			m.metrics.failures.WithLabelValues(l.Cause).Inc()
		}
		m.say(l)
	case m.phase == down:
		m.begin(time.Now())
	default:
		m.observe(nil)
	}
}

// begin looks at a run that is up by its own word.
func (m *monitor) begin(now time.Time) {
	m.phase, m.began, m.moved = proving, now, now
	m.pressure, m.last, m.booked = pressure{}, reading{}, reading{}
	m.fails, m.proved, m.doubt, m.probedAt = 0, false, "", time.Time{}
	m.books.begin(m.life.Epoch)
	m.starting("it is up, and shall generate a token")
}

// starting says why an engine that is up is not ready.
func (m *monitor) starting(reason string) {
	l := m.life
	l.State, l.Reason = workerv1.State_STATE_STARTING, reason
	m.say(l)
}

// say is what the worker says of its engine.
func (m *monitor) say(l Life) {
	m.log.Info("engine", "state", l.State.String(), "reason", l.Reason, "cause", l.Cause, "epoch", l.Epoch)
	m.states.tell(l)
	m.observe(nil)
}

// advance begins what is due.
func (m *monitor) advance(ctx context.Context, now time.Time) {
	if m.phase == down {
		return
	}
	if !m.probe.runs() && !(m.read.runs() && m.settling) && m.probeDue(now) {
		m.probedAt = now
		m.probe.start(ctx, m.watch.Hung, m.prober.ask)
	}
	if !m.read.runs() && m.readDue(now) {
		entered, idle := m.states.rest()
		settle := !m.probe.runs() && (m.phase == proving || idle && m.bookingDue(now))
		m.settling = settle
		m.read.start(ctx, settleMost+readMost, func(ctx context.Context) readResult {
			r := m.reader.read(ctx, settle)
			r.entered = entered
			return r
		})
	}
}

func (m *monitor) readDue(now time.Time) bool {
	if m.phase == proving {
		return m.proved
	}
	return now.Sub(m.last.at) >= m.watch.Every
}

func (m *monitor) bookingDue(now time.Time) bool {
	return now.Sub(m.booked.at) >= m.watch.Journal && !m.booked.SameTokens(m.last.counters)
}

func (m *monitor) probeDue(now time.Time) bool {
	since := now.Sub(m.probedAt)
	switch {
	case m.proved:
		return false
	case m.phase != trusted || m.fails > 0:
		return since >= m.watch.again
	case m.states.count() > 0:
		return min(since, m.quiet(now)) >= m.watch.Hung
	default:
		return m.watch.Idle > 0 && min(since, m.quiet(now)) >= m.watch.Idle
	}
}

// quiet is how long no token has come.
func (m *monitor) quiet(now time.Time) time.Duration {
	return max(0, min(now.Sub(m.moved), now.Sub(m.traffic.last()), now.Sub(m.began)))
}

// finish takes the engine's last words, and returns when they are journaled. Nothing is asked of it any more.
func (m *monitor) finish() {
	if m == nil {
		return
	}
	done := make(chan struct{})
	m.ending <- done
	<-done
}

// lastWords are the counters after the last request, before the engine is stopped.
func (m *monitor) lastWords(ctx context.Context) {
	m.stopJobs()
	if m.phase != trusted && m.phase != doubted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleMost+readMost)
	defer cancel()
	moment := usage.MomentLast
	if r := m.reader.read(ctx, true); r.err == nil {
		m.last = reading{time.Now(), r.counters}
	} else {
		moment = usage.MomentLost // those of before, which lack what came since
	}
	m.books.engine(moment, m.last.counters)
	m.phase = down
}

// stopJobs ends what runs beside. A probe that is cut is journaled: the engine may have counted it.
func (m *monitor) stopJobs() {
	if r, ok := m.probe.stop(); ok {
		m.books.probe(r)
		m.metrics.probe(r)
	}
	m.read.stop()
}

func newMonitor(cfg Config, states *states, log *slog.Logger) *monitor {
	e, ok := cfg.Engine.(speaker)
	if !ok {
		return nil
	}
	m := &monitor{
		watch: cfg.Watch, engine: cfg.Engine, states: states, log: log, lives: newInbox(), ending: make(chan chan struct{}),
		books:   books{journal: cfg.Journal, worker: cfg.Name, spoke: cfg.Spoke, endpoint: cfg.Endpoint},
		prober:  prober{base: cfg.Engine.Base(), via: cfg.Engine.Transport()},
		reader:  reader{base: cfg.Engine.Base(), via: cfg.Engine.Transport(), speech: e.speaks()},
		traffic: &traffic{to: cfg.Engine.Transport()}, metrics: newEngineMetrics(cfg.Registerer),
	}
	if m.watch.GPU != nil {
		m.reader.gpu = newGPUReader(m.watch.GPU)
	}
	return m
}
