package worker

import (
	"bytes"

	"github.com/spokegate/spokegate/openai"
)

// maxEvent is the largest event that is looked into, in bytes. A larger one passes as the engine sent it.
const maxEvent = 1 << 20

type span struct{ start, end int }

// events cuts an event stream at the ends of its events, wherever the engine's bytes were cut. Lines end with LF, CRLF or
// CR. An event is handed on when it is whole; until then at most maxEvent bytes are held.
type events struct {
	to *notes // appends what becomes of an event

	held []byte // the event so far
	line int    // where its present line begins
	seen int    // no line end before this
	data []span // its data lines, without the name

	over bool // an event above maxEvent: it passes, up to its end
	cut  bool // and part of its present line has passed
	open bool // what passed ends inside an event
}

// write appends to out what p brings to its end.
func (e *events) write(out, p []byte) []byte {
	buf := p
	if len(e.held) > 0 {
		e.held = append(e.held, p...)
		buf = e.held
	}
	for {
		end, next, ok := lineEnd(buf, e.line, e.seen)
		if !ok {
			break
		}
		last, blank := e.line, end == e.line && !e.cut
		e.remember(buf, end)
		e.line, e.seen, e.cut = next, next, false
		if blank {
			out = e.emit(out, buf[:next], last)
			buf = buf[next:]
		}
	}
	e.seen = max(e.line, len(buf)-1) // the last byte may be a CR that waits for its LF
	out = e.hold(out, buf)
	e.to.end = e.to.sent(out)
	return out
}

// hold keeps the event's beginning, or lets it pass when it is too large.
func (e *events) hold(out, buf []byte) []byte {
	if e.over || len(buf) > maxEvent {
		out, buf = e.pass(out, buf)
	}
	e.held = append(e.held[:0], buf...)
	return out
}

// pass lets go of all but a CR at the end.
func (e *events) pass(out, buf []byte) (passed, rest []byte) {
	n := len(buf)
	if n > 0 && buf[n-1] == '\r' {
		n--
	}
	e.over, e.cut, e.data = true, e.cut || e.line < n, e.data[:0]
	e.line, e.seen = 0, 0
	return e.to.piece(out, buf[:n]), buf[n:]
}

// remember keeps where a data line is.
func (e *events) remember(buf []byte, end int) {
	line := buf[e.line:end]
	if e.over || e.cut || !bytes.HasPrefix(line, []byte("data")) {
		return
	}
	start := e.line + len("data")
	switch {
	case start == end:
	case buf[start] != ':':
		return
	default:
		if start++; start < end && buf[start] == ' ' {
			start++
		}
	}
	e.data = append(e.data, span{start, end})
}

// emit passes an event on whose blank line begins at last. Its note stands before that line, for many readers take each blank line
// for the end of an event, and one more for an event without data.
func (e *events) emit(out, event []byte, last int) []byte {
	start, small := len(out), !e.over && len(event) <= maxEvent
	if small {
		e.to.read(event)
		out = e.to.pass(out, event[:last], e.data)
	} else {
		out = e.to.piece(out, event[:last])
		e.to.read(event[last:])
	}
	gone := small && last > 0 && len(out) == start
	if last > 0 || !small {
		out = e.to.note(out)
	}
	if e.to.loose = gone; !gone {
		out = append(out, event[last:]...)
	}
	e.line, e.seen, e.data, e.over = 0, 0, e.data[:0], false
	return out
}

// close ends the stream where the engine ended it. whole is false when it broke off inside an event that says something;
// then that event is dropped, as a client would have dropped it. What was used is counted, and not noted yet.
func (e *events) close(out []byte) (_ []byte, whole bool) {
	end := len(bytes.TrimSuffix(e.held, []byte("\r")))
	if e.line < end {
		e.remember(e.held, end)
	}
	blank := e.line == end && end < len(e.held) && !e.cut
	e.open = !blank && (e.over || len(e.held) > 0)
	switch {
	case e.over:
		out = e.to.piece(out, e.held)
	case len(e.data) > 0 && !blank && !wholeData(joined(e.held, e.data)):
		e.to.read(e.held)
		e.open = false
	case blank:
		out, whole = e.emit(out, e.held, end), true
	default:
		e.to.read(e.held)
		e.to.meter.Close() // which counts also what has no end
		out, whole = e.to.pass(out, e.held, e.data), true
		if len(out) == 0 && len(e.held) > 0 { // all of it was taken out
			out, e.open = e.to.note(out), false
		}
	}
	e.held, e.to.end = nil, e.to.sent(out)
	return out, whole
}

// leave counts what no client will get.
func (e *events) leave() {
	e.to.read(e.held)
	e.held = nil
}

// lastNote is the note of what close has counted. It ends no event that the engine left open.
func (e *events) lastNote() []byte {
	if e.to.end == 0 { // nothing has passed
		return nil
	}
	e.to.loose = false // nothing follows
	return e.to.note(nil)
}

// cutOff ends the stream by an event of our own, which says so.
func (e *events) cutOff(event []byte) (out []byte) {
	if e.open {
		out = append(out, "\n\n"...)
	}
	r := e.to.meter.Report()
	r.Failed, r.UpstreamCut = true, true
	out = append(out, bytes.TrimSuffix(event, []byte("\n"))...)
	return append(e.to.line(out, openai.AppendNote(nil, &r, 0)), '\n')
}

// lineEnd finds the end of the line at from, looking from seen on: the line is buf[from:end], the next begins at next. A CR
// at the end of buf is not decided yet.
func lineEnd(buf []byte, from, seen int) (end, next int, ok bool) {
	at := max(from, seen)
	lf := bytes.IndexByte(buf[at:], '\n')
	stop := len(buf)
	if lf >= 0 {
		stop = at + lf
	}
	cr := bytes.IndexByte(buf[at:stop], '\r')
	switch {
	case cr >= 0 && at+cr+1 == len(buf): // no LF can follow yet
		return 0, 0, false
	case cr >= 0 && at+cr+1 == stop && lf >= 0:
		return at + cr, stop + 1, true
	case cr >= 0:
		return at + cr, at + cr + 1, true
	case lf >= 0:
		return stop, stop + 1, true
	}
	return 0, 0, false
}

// joined is the data of an event: its data lines with LF between them.
func joined(event []byte, data []span) []byte {
	if len(data) == 1 {
		return event[data[0].start:data[0].end]
	}
	var all []byte
	for i, d := range data {
		if i > 0 {
			all = append(all, '\n')
		}
		all = append(all, event[d.start:d.end]...)
	}
	return all
}
