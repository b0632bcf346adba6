package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spokegate/spokegate/usage"
)

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
		first := m.last.counters
		if !r.settled { // requests of before still run: what they take is journaled for no run, or for the one before
			first.Prompt, first.Completion = nil, nil
		}
		m.books.engine(usage.MomentFirst, first)
		m.phase, m.proved, m.booked = trusted, false, m.last
		m.say(m.life)
	case r.err != nil:
		return
	case m.last.Backwards(before.counters):
		if e, ok := m.engine.(renewer); ok {
			m.last = before // of the run that has ended
			e.renew()
			return
		}
	case !before.SameTokens(m.last.counters):
		m.moved = now
	}
	m.metrics.counted(m.last.counters)
	m.observe(&r)
	if r.settled && !m.booked.SameTokens(m.last.counters) {
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
	m.states.observe(causes, loadOf(m.last.counters), ranksOf(m.last.counters))
}
