package openai

import "bytes"

const (
	doneMark  = "[DONE]"
	byteOrder = "\xEF\xBB\xBF"
)

// lines cuts an event stream into lines and fields as the SSE standard says: lines end with LF, CR or CRLF, a byte order
// mark may come first, one space after the colon is no part of the value.
type lines struct {
	part  part
	name  [5]byte // of the field; no field that matters is longer
	size  int     // of the name; above len(name): too long
	match int     // how far the comment follows UsageComment
	cr    bool    // the last byte was a CR: an LF after it belongs to it
	order int     // how much of the byte order mark was seen; above its length: it is past
	mark  int     // how far the event's data follows doneMark; -1: not
	kind  [5]byte // value of the event field
	long  int     // its length; above len(kind): too long
}

// part is where in a line the next byte is.
type part uint8

const (
	atStart part = iota
	inName
	beforeData // one space may follow
	inData
	beforeKind
	inKind
	beforeComment
	inComment // still following UsageComment
	inNote    // its JSON
	rest      // of no interest
)

func (l *lines) write(p []byte, m *Meter) {
	for i, lf := 0, -1; i < len(p); {
		if lf < i {
			lf = lineFeed(p, i)
		}
		if l.cr {
			l.cr = false
			if p[i] == '\n' {
				i++
				continue
			}
		}
		end := lf
		if n := bytes.IndexByte(p[i:lf], '\r'); n >= 0 {
			end = i + n
		}
		l.read(p[i:end], m)
		if end < len(p) {
			l.cr = p[end] == '\r'
			l.endLine(m)
		}
		i = end + 1
	}
}

func lineFeed(p []byte, i int) int {
	if n := bytes.IndexByte(p[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(p)
}

// read takes a piece of one line.
func (l *lines) read(p []byte, m *Meter) {
	p = l.skipMark(p)
	for len(p) > 0 {
		switch l.part {
		case atStart:
			l.part, l.size = inName, 0
		case inName:
			p = l.readName(p, m)
		case beforeData, beforeKind, beforeComment:
			l.part++
			if p[0] == ' ' {
				p = p[1:]
			}
		case inComment:
			p = l.follow(p, m)
		default:
			l.readValue(p, m)
			return
		}
	}
}

func (l *lines) readValue(p []byte, m *Meter) {
	switch l.part {
	case inData:
		l.followDone(p)
		m.data.write(p)
	case inNote:
		m.note.write(p)
	case inKind:
		for _, c := range p {
			if l.long < len(l.kind) {
				l.kind[l.long] = c
			}
			l.long = min(l.long, len(l.kind)) + 1
		}
	}
}

// skipMark takes a byte order mark off the stream's beginning. A part of one is a field name that means nothing.
func (l *lines) skipMark(p []byte) []byte {
	for len(p) > 0 && l.order < len(byteOrder) {
		if p[0] != byteOrder[l.order] {
			l.endMark()
			break
		}
		l.order++
		p = p[1:]
	}
	return p
}

func (l *lines) endMark() {
	if 0 < l.order && l.order < len(byteOrder) {
		l.part = rest
	}
	l.order = len(byteOrder)
}

func (l *lines) readName(p []byte, m *Meter) []byte {
	for i, c := range p {
		if c == ':' {
			l.beginValue(m)
			return p[i+1:]
		}
		if l.size < len(l.name) {
			l.name[l.size] = c
		}
		l.size = min(l.size, len(l.name)) + 1
	}
	return nil
}

func (l *lines) field() string {
	if l.size > len(l.name) {
		return "?"
	}
	return string(l.name[:l.size])
}

func (l *lines) beginValue(m *Meter) {
	switch l.field() {
	case "data":
		l.part = beforeData
		l.beginData(m)
	case "event":
		l.part, l.long = beforeKind, 0
	case "":
		l.part, l.match = beforeComment, 0
	default:
		l.part = rest
	}
}

func (l *lines) beginData(m *Meter) {
	if m.has {
		l.followDone([]byte{'\n'})
	} else {
		l.mark = 0
	}
	m.beginData()
}

// followDone compares the event's data with doneMark. What comes after it does not matter, as for the SDKs.
func (l *lines) followDone(p []byte) {
	for i := 0; i < len(p) && 0 <= l.mark && l.mark < len(doneMark); i++ {
		if p[i] != doneMark[l.mark] {
			l.mark = -1
			return
		}
		l.mark++
	}
}

// follow compares a comment with what a shim writes.
func (l *lines) follow(p []byte, m *Meter) []byte {
	for i, c := range p {
		if c != UsageComment[l.match] {
			l.part = rest
			return p[i:]
		}
		if l.match++; l.match == len(UsageComment) {
			l.part = inNote
			m.note.reset(m.op, comment)
			return p[i+1:]
		}
	}
	return nil
}

func (l *lines) endLine(m *Meter) {
	l.endMark()
	switch {
	case l.part == atStart:
		m.endEvent()
	case l.part == inName && l.field() == "data":
		l.beginData(m)
	}
	l.endNote(m)
	l.part = atStart
}

// endNote hands over the shim's comment in which the line, or the stream, ends.
func (l *lines) endNote(m *Meter) {
	if l.part == inNote {
		m.endComment()
	}
}

// done says that the event's data is the end mark.
func (l *lines) done() bool { return l.mark == len(doneMark) }

// isError says that the event field named an error.
func (l *lines) isError() bool { return l.long == len(l.kind) && string(l.kind[:]) == "error" }

func (l *lines) endEvent() { l.mark, l.long = 0, 0 }
