package openai

// What a worker's shim writes into a response, and a door's meter reads.
const (
	EventStream     = "text/event-stream" // the content type of a stream, just so
	CodeUpstreamCut = "upstream_cut"      // the reserved code of the error that ends a stream which the engine broke off
	UsageComment    = "spokegate-usage "  // begins a comment line of a stream, after ": "; a note follows
)

// Meter reads the response to one request as it passes by. The bytes may be cut anywhere, also inside a UTF-8 sequence,
// without a difference to the report. It keeps a few hundred bytes, never an event, and up to maxChoices counters where a
// response has several choices. Not safe for concurrent use.
//
// In a stream, what an event says counts when the event is whole: at its blank line, or at Close if its JSON is complete.
type Meter struct {
	op     Op
	lines  *lines   // nil: one JSON value, not a stream
	data   walker   // the JSON of the event, or the whole response
	note   walker   // the JSON of a comment from a worker's shim
	noted  findings // by notes before the event's data
	latest findings // by its last note
	some   bool     // the event has a note
	late   bool     // latest stands behind the event's data
	has    bool     // the event has data
	tally  tally
	closed bool
}

// NewMeter returns a meter for a response to op; sse says that it is an event stream, else it is one JSON value.
func NewMeter(op Op, sse bool) *Meter {
	m := &Meter{op: op}
	m.data.reset(op, root)
	if sse {
		m.lines = &lines{}
	}
	return m
}

// Write takes the next bytes of the response, cut anywhere. It never fails and keeps nothing of p. After Close it does
// nothing.
func (m *Meter) Write(p []byte) (int, error) {
	switch {
	case m.closed:
	case m.lines != nil:
		m.lines.write(p, m)
	default:
		m.data.write(p)
	}
	return len(p), nil
}

// Close says that no more bytes come, at the end or after a cut, and returns the report. It may be called again.
func (m *Meter) Close() Report {
	if !m.closed {
		m.closed = true
		m.finish()
	}
	return m.Report()
}

// Report says what the response has said so far, and goes on.
func (m *Meter) Report() Report {
	a := m.tally.account(m.op, m.lines != nil)
	return a.report()
}

func (m *Meter) finish() {
	if m.lines == nil {
		m.finishJSON()
		return
	}
	if m.lines.part == inNote && m.note.complete() {
		m.endComment()
	}
	switch {
	case !m.has && m.some:
		m.tally.onlyRaise(&m.noted)
	case m.has && (m.data.complete() || m.lines.done()):
		m.endEvent()
	} // else cut inside the event: it was not delivered
}

// finishJSON takes what was read of a single value, also when its end is missing: a number that was read whole is a fact.
func (m *Meter) finishJSON() {
	whole := m.data.complete()
	if m.data.state == broken {
		m.tally.doubts |= badJSON
		return
	}
	m.data.found.content = false
	m.data.found.choices = 0
	m.data.found.terminal = whole
	m.tally.add(&m.data.found)
}

// beginData is called at each data line of an event. The lines of one event are joined by a line feed.
func (m *Meter) beginData() {
	if m.has {
		m.data.write([]byte{'\n'})
		return
	}
	m.has = true
	m.data.reset(m.op, root)
}

// endComment is called when a shim's comment is over.
func (m *Meter) endComment() {
	if !m.note.complete() {
		m.tally.doubts |= badUsage
		return
	}
	if !m.has {
		m.noted.merge(&m.note.found)
	}
	m.latest, m.some, m.late = m.note.found, true, m.has
}

// endEvent is called at the blank line after an event, also when nothing stands before it.
func (m *Meter) endEvent() {
	switch {
	case m.has:
		m.commit()
	case m.some:
		m.tally.replace(&m.latest)
	}
	m.has, m.some, m.late, m.noted = false, false, false, findings{}
	m.lines.endEvent()
}

// commit takes what the event's data says, with what a note before it says more. One behind it says all of what has been used.
func (m *Meter) commit() {
	f := m.noted
	switch {
	case m.lines.done():
		f.terminal = true
	case !m.data.complete():
		m.tally.doubts |= badJSON
	default:
		f = m.data.found
		f.under(&m.noted)
		f.failed = f.failed || m.lines.isError()
	}
	m.tally.add(&f)
	switch {
	case m.late:
		m.tally.replace(&m.latest)
	case m.some:
		m.tally.noted = m.latest.doubts
	}
}
