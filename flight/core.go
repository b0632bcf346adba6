package flight

import (
	"container/list"
	"net/http"
	"slices"
	"time"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

// flight is one admission on its way.
type flight struct {
	admission Admission
	hold      limits.Hold
	booking   Booking // nil: none
	told      bool    // the booking was told of the answer, or need not be
	served    string
	meter     Meter // nil: none is at work
	firstByte time.Time
	passed    *Metered // so far, as Envoy tells while it runs
	facts     Facts
	ended     bool          // a fact has said that it is over
	lapsed    bool          // its lease is gone for good
	revoked   bool          // its key was, while it was open
	due       time.Time     // of the next renewal while open, of the usage record when ended
	place     *list.Element // in core.open or core.ended
	overdue   time.Time     // when the access log counts as lost
	unseen    *list.Element // in core.unseen; nil: not there
	settled   bool          // its hold was freed
	freeBy    time.Time     // when it is freed at the latest, once it has ended
	unsettled *list.Element // in core.unsettled; nil: not there
}

// core is the sequential heart: every method is called under the table's lock, and none blocks. What has to be done
// outside of it (freeing, telling a booking) is returned.
type core struct {
	spoke      string
	journal    Journal
	metrics    *metrics
	grace      time.Duration
	leaseEvery time.Duration
	orphan     time.Duration

	flights   map[string]*flight
	open      list.List // of *flight, by due
	ended     list.List // of *flight, by due; the usage record is not written yet
	unseen    list.List // of *flight, by overdue: open, no meter sees it, only the access log says that it runs, and when it is over
	unsettled list.List // of *flight, by freeBy: ended, its hold waits to be settled
	recent    *recent
	closed    bool
}

// freed is what an ended flight no longer needs.
type freed struct {
	bill    bill           // of its hold; zero: not yet, or was
	booking Booking        // nil: none
	report  *openai.Report // what it is told; nil: that it is over
}

// start opens a flight and journals it. Facts that came before it end it at once.
func (c *core) start(a Admission, hold limits.Hold, now time.Time) (opened bool, free []freed) {
	if c.flights[a.ID] != nil || c.recent.ended(a.ID) {
		return false, nil
	}
	a.ClientRequestID = usage.ClientRequestID(a.ClientRequestID)
	f := &flight{admission: a, hold: hold, due: now.Add(c.leaseEvery)}
	f.place = c.open.PushBack(f)
	c.flights[a.ID] = f
	c.metrics.open.Inc()
	c.metrics.reserve(a.Model, hold)
	c.watchLog(f, now) // which may be the only one that says how it ended
	c.journal.Append(f.admitted(c.spoke))
	early := c.recent.early(a.ID)
	if c.closed {
		early.merge(Facts{Lost: doorStopped})
	}
	if !early.empty() {
		free = c.end(a.ID, early, now)
	}
	if c.closed {
		free = append(free, c.finishAll(now)...)
	}
	return true, free
}

// end takes facts. The first conclusive ones free what the flight holds, except that a hold with quotas waits a little for
// the counts.
func (c *core) end(id string, facts Facts, now time.Time) (free []freed) {
	if facts.empty() {
		return nil
	}
	f := c.flights[id]
	if f == nil {
		c.stray(id, facts)
		return nil
	}
	f.facts.merge(facts)
	free = f.tell(free)
	if !f.facts.conclusive() {
		c.watchLog(f, now)
		return free
	}
	if !f.ended {
		c.unwatchLog(f)
		if f.booking != nil {
			free = append(free, freed{booking: f.booking})
		}
		f.ended = true
		f.due = now.Add(c.grace)
		c.open.Remove(f.place)
		f.place = c.ended.PushBack(f)
		c.metrics.open.Dec()
	}
	free = append(free, c.settle(f, now, false)...)
	if f.facts.settled() {
		c.finish(f, now)
	}
	return free
}

// known are the parts of the facts. Of a flight that is lost what had passed counts, where nothing better has come yet.
func (f *flight) known() (*Metered, *Logged) {
	if f.facts.Metered == nil && f.facts.Lost != "" {
		return f.passed, f.facts.Logged
	}
	return f.facts.Metered, f.facts.Logged
}

// watchLog has a flight given up when the access log is overdue.
func (c *core) watchLog(f *flight, now time.Time) {
	if f.unseen == nil {
		f.overdue = now.Add(c.orphan)
		f.unseen = c.unseen.PushBack(f)
	}
}

// pass notes that a flight is alive, and what has passed of its answer.
func (c *core) pass(id string, m *Metered, now time.Time) {
	f := c.live(id)
	if f == nil {
		return
	}
	if m != nil {
		f.passed = m
	}
	if f.unseen != nil {
		c.unwatchLog(f)
		c.watchLog(f, now)
	}
}

func (c *core) unwatchLog(f *flight) {
	if f.unseen != nil {
		c.unseen.Remove(f.unseen)
		f.unseen = nil
	}
}

// tell adds that the booking is to be told of a good answer, once.
func (f *flight) tell(free []freed) []freed {
	m := f.facts.Metered
	if m == nil || f.booking == nil || f.told {
		return free
	}
	f.told = true
	if m.Status != http.StatusOK || !m.Report.Terminal || m.Report.Failed {
		return free
	}
	return append(free, freed{booking: f.booking, report: &m.Report})
}

// stray takes facts of an admission without a flight: early ones are kept, late ones counted.
func (c *core) stray(id string, facts Facts) {
	if m := c.recent.of(id); m.ended {
		if facts.Metered == nil || facts.Metered.Status != 0 { // else it says that nothing passed, and the record does too
			c.metrics.anomalies.WithLabelValues(late).Inc()
		}
	} else {
		m.facts.merge(facts)
	}
}

// finish writes the usage record.
func (c *core) finish(f *flight, now time.Time) {
	r := f.used(c.spoke, now)
	c.journal.Append(r)
	c.metrics.finished(r)
	c.ended.Remove(f.place)
	delete(c.flights, f.admission.ID)
	c.recent.end(f.admission.ID)
}

// expire finishes what has waited long enough for the rest of its facts, and ends what no access log will end.
func (c *core) expire(now time.Time) (free []freed) {
	for e := c.unseen.Front(); e != nil && !e.Value.(*flight).overdue.After(now); e = c.unseen.Front() {
		free = append(free, c.end(e.Value.(*flight).admission.ID, Facts{Lost: logOverdue}, now)...) // takes e out
	}
	free = append(free, c.settleDue(now, false)...)
	for e := c.ended.Front(); e != nil && !e.Value.(*flight).due.After(now); e = c.ended.Front() {
		c.finish(e.Value.(*flight), now)
	}
	return free
}

// finishAll settles and finishes what has ended, without waiting for more.
func (c *core) finishAll(now time.Time) (free []freed) {
	free = c.settleDue(now, true)
	for e := c.ended.Front(); e != nil; e = c.ended.Front() {
		c.finish(e.Value.(*flight), now)
	}
	return free
}

// renewals returns at most n holds whose leases are due, and notes them as renewed.
func (c *core) renewals(now time.Time, n int) (holds []limits.Hold) {
	for e := c.open.Front(); e != nil && len(holds) < n && !e.Value.(*flight).due.After(now); e = c.open.Front() {
		f := e.Value.(*flight)
		f.due = now.Add(c.leaseEvery)
		c.open.MoveToBack(e)
		if f.hold.Renewable() && !f.lapsed {
			holds = append(holds, f.hold)
		}
	}
	return holds
}

// notRenewed makes holds due again.
func (c *core) notRenewed(holds []limits.Hold, now time.Time) {
	for _, h := range slices.Backward(holds) {
		if f := c.live(h.Admission); f != nil {
			f.due = now
			c.open.MoveToFront(f.place)
		}
	}
}

// lose ends every open flight that was admitted before a moment.
func (c *core) lose(before time.Time, reason string, now time.Time) (n int, free []freed) {
	var next *list.Element
	for e := c.open.Front(); e != nil; e = next {
		next = e.Next() // the end takes e out of the list
		if a := &e.Value.(*flight).admission; a.At.Before(before) {
			free = append(free, c.end(a.ID, Facts{Lost: reason}, now)...)
			n++
		}
	}
	return n, free
}

// close ends everything and writes all records.
func (c *core) close(now time.Time) (n int, free []freed) {
	c.closed, n = true, c.open.Len()
	for e := c.open.Front(); e != nil; e = c.open.Front() {
		free = append(free, c.end(e.Value.(*flight).admission.ID, Facts{Lost: doorStopped}, now)...)
	}
	return n, append(free, c.finishAll(now)...)
}

// live returns the flight if it is open.
func (c *core) live(id string) *flight {
	if f := c.flights[id]; f != nil && !f.ended {
		return f
	}
	return nil
}

// book gives the flight a booking and returns the one it had. ok false: there is no such open flight.
func (c *core) book(id string, b Booking) (before Booking, ok bool) {
	f := c.live(id)
	if f == nil {
		return nil, false
	}
	before, f.booking = f.booking, b
	return before, true
}

// begin notes that the response began, and returns the booking to be told.
func (c *core) begin(id, served string, at time.Time, m Meter) Booking {
	f := c.flights[id]
	if f == nil {
		return nil
	}
	if f.firstByte.IsZero() {
		f.firstByte = at
	}
	if served != "" {
		f.served = served
	}
	if m != nil && !f.settled {
		f.meter = m
		if f.facts.Metered == nil { // it did not break off: it will say when it is over
			c.unwatchLog(f)
		}
	}
	if f.ended { // its booking is over
		return nil
	}
	return f.booking
}
