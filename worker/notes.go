package worker

import (
	"bytes"

	"github.com/spokegate/spokegate/openai"
)

const (
	// noteHeader says where the door finds what an answer has used: a note of the whole answer, or noteStream.
	noteHeader = "X-Spokegate-Note"
	noteStream = "stream" // behind each event
	noteMark   = ": " + openai.UsageComment
	doneMark   = "[DONE]"
)

// notes make of an engine's events what a client gets: without usage that it did not ask for, and behind each event, as a comment,
// all that has been used up to it. The door's Envoy keeps the last one that has passed.
type notes struct {
	meter *openai.Meter
	strip *stripper // nil: nothing is taken out
	last  []byte    // the note that was written last; empty: none was. Behind the first event there is one in any case
	next  []byte    // room for another
	room  [2][openai.MaxNote]byte
	// marked says that the engine's own bytes since then may have a note: ours must be the last.
	marked bool
	loose  bool // the last one stands before the next event: that has one behind it in any case, which says all
	end    byte // the last byte that went out; 0: none has
}

func newNotes(op openai.Op, strip *stripper) *notes {
	n := &notes{meter: openai.NewMeter(op, true), strip: strip}
	n.last, n.next = n.room[0][:0], n.room[1][:0]
	return n
}

// pass passes an event on that is counted, without its blank line. Clients leave at the end mark: its note comes before it.
func (n *notes) pass(out, event []byte, data []span) []byte {
	n.marked = n.marked || hasNote(event, data)
	if !n.marked && len(data) > 0 && bytes.HasPrefix(event[data[0].start:data[0].end], []byte(doneMark)) {
		out = n.note(out)
	}
	if n.strip == nil {
		return append(out, event...)
	}
	return n.strip.event(out, event, data)
}

// hasNote says that the engine may have written a note of its own beside the data.
func hasNote(event []byte, data []span) bool {
	mark := []byte(openai.UsageComment)
	if len(data) == 0 {
		return bytes.Contains(event, mark)
	}
	return bytes.Contains(event[:data[0].start], mark) || bytes.Contains(event[data[0].end:], mark)
}

// piece passes a part on of an event that is too large to be looked into.
func (n *notes) piece(out, p []byte) []byte {
	n.read(p)
	n.marked = true
	return append(out, p...)
}

// read takes bytes that only count.
func (n *notes) read(p []byte) { _, _ = n.meter.Write(p) }

// note appends a line with what has been used so far, if that is news.
func (n *notes) note(out []byte) []byte {
	if !n.news() {
		return out
	}
	return n.line(out, n.last)
}

// news says that a note is due, which is n.last then.
func (n *notes) news() bool {
	n.next = n.meter.AppendNote(n.next[:0])
	if !n.marked && !n.loose && bytes.Equal(n.next, n.last) {
		return false
	}
	n.last, n.next, n.marked, n.loose = n.next, n.last, false, false
	return true
}

// line appends a note as a line of its own. It begins behind an LF also where the engine's lines end with CR: that is what Envoy looks
// for, and readers take CRLF for one end of line.
func (n *notes) line(out, note []byte) []byte {
	switch n.sent(out) {
	case '\n':
	case 0: // an empty line would be an event to some
		out = append(out, ":\n"...)
	default:
		out = append(out, '\n')
	}
	out = append(append(out, noteMark...), note...)
	return append(out, '\n')
}

// sent is the last byte that a client has got once it has out.
func (n *notes) sent(out []byte) byte {
	if len(out) > 0 {
		return out[len(out)-1]
	}
	return n.end
}
