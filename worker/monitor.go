package worker

import (
	"context"
	"errors"
	"fmt"
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
	return now.Sub(m.booked.at) >= m.watch.Journal && !m.booked.tokens(m.last.counters)
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

// probed judges by a probe.
func (m *monitor) probed(r probeResult, now time.Time) {
	m.books.probe(r)
	m.metrics.probe(r)
	switch {
	case r.err == nil, r.refused:
		m.answered(r, now)
		return
	case m.phase == trusted && m.quiet(now) < r.took:
		return // tokens came in the meantime: it is busy, not dead
	}
	m.fails++
	m.log.Warn("probe not answered", "error", r.err, "in_a_row", m.fails, "took", r.took)
	silent := errors.Is(r.err, context.DeadlineExceeded)
	switch {
	case m.phase == proving && (m.fails < probeFails || now.Sub(m.began) < m.watch.Hung):
		m.starting(fmt.Sprintf("it is up, and generates nothing: %v", r.err))
	case m.phase == trusted && m.fails < probeFails && !silent:
		m.doubt = fmt.Sprintf("%s: %v", probing, r.err)
		m.observe(nil)
	case m.phase != doubted:
		m.giveUp(fmt.Sprintf("is up by its own word, and has generated nothing for %s: %v", words(max(m.quiet(now), r.took)), r.err))
	}
}

// answered is a probe that proves the engine, or that it cannot be proved.
func (m *monitor) answered(r probeResult, now time.Time) {
	if r.refused {
		m.log.Warn("the engine cannot be probed: it counts as ready by its health alone", "answer", r.err)
	}
	m.fails, m.doubt, m.moved = 0, "", now
	switch m.phase {
	case proving:
		m.proved = true
	case doubted:
		m.phase = trusted
		m.say(m.life)
	default:
		m.observe(nil)
	}
}

// giveUp is the end of the belief in an engine that says it is well.
func (m *monitor) giveUp(reason string) {
	m.phase = doubted
	m.log.Error("the engine is given up", "reason", reason, "running", m.states.count())
	l := failed(causeHung, reason)
	l.Description = m.life.Description
	m.say(l)
	if r, ok := m.engine.(restarter); ok {
		r.restart(reason) // and it tells the failure
	} else {
		m.metrics.failures.WithLabelValues(causeHung).Inc()
	}
}

// readNow judges by a reading of the counters.
func (m *monitor) readNow(r readResult, now time.Time) {
	if r.err != nil {
		m.log.Debug("the engine's metrics were not read", "error", r.err)
	}
	before := m.last
	m.last.at = now // of the attempt: the next one is Every later
	if r.err == nil {
		m.last = reading{now, r.counters}
	}
	switch {
	case m.phase == proving:
		// Also without counters: nobody knows why they were not read, and the engine generates.
		m.books.engine(usage.MomentFirst, m.last.counters)
		m.phase, m.proved, m.booked = trusted, false, m.last
		m.say(m.life)
	case r.err != nil:
		return
	case backwards(before.counters, m.last.counters):
		if e, ok := m.engine.(renewer); ok {
			m.last = before // of the run that has ended
			e.renew()
			return
		}
	case !before.tokens(m.last.counters):
		m.moved = now
	}
	m.metrics.counted(m.last.counters)
	m.observe(&r)
	if r.settled && !m.booked.tokens(m.last.counters) {
		m.states.atRest(r.entered, m.bookIdle)
	}
}

// bookIdle journals the latest reading. Whatever the engine counted before it must stand before it in the journal, and
// whatever comes later behind it: so nobody may enter meanwhile.
func (m *monitor) bookIdle() {
	m.books.engine(usage.MomentIdle, m.last.counters)
	m.booked = m.last
}

// observe tells what is known beside the state. r: a new reading; nil: none.
func (m *monitor) observe(r *readResult) {
	if r != nil {
		m.pressure.take(m.last, r.gpu)
	}
	var found []string
	if m.phase == trusted || m.phase == doubted {
		found = m.pressure.causes
	}
	causes := sorted([]string{m.doubt, m.life.Degraded}, found)
	if m.phase != down && m.states.count() > 0 && m.quiet(time.Now()) >= m.watch.Hung {
		causes = sorted([]string{fmt.Sprintf("%s: no token for %s", hung, words(m.watch.Hung))}, causes)
	}
	m.metrics.degraded(causes)
	m.states.observe(causes, m.last.load())
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

// backwards says that counters began anew.
func backwards(from, to counters) bool {
	return less(to.prompt, from.prompt) || less(to.completion, from.completion)
}

func less(a, b *int64) bool { return a != nil && b != nil && *a < *b }

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
