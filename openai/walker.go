package openai

// walker reads one JSON value piece by piece and notes what stands at the paths that a meter wants. It keeps the tracked
// containers around the current place and counts the rest; where it does not look it is lenient. It never looks back.
type walker struct {
	op    Op
	found findings
	state state
	slot  slot    // meaning of the value that is expected or being read
	open  [8]slot // containers around it that are tracked; the deepest path has five
	depth int
	skip  int // containers open inside a value that means nothing

	inKey   bool
	escaped bool     // the byte before was a backslash
	slashed bool     // the string has a backslash
	some    bool     // the string is not empty
	kept    [64]byte // the key, string or scalar so far
	length  int      // above len(kept): too long to mean anything
}

type state uint8

const (
	wantValue state = iota
	wantKey
	wantColon
	wantComma
	inString
	inScalar
	skipping
	ended
	broken
)

func (w *walker) reset(op Op, top slot) { *w = walker{op: op, slot: top} }

// complete says that a whole value was read, and nothing but white space after it. A number alone is complete when nothing
// more comes.
func (w *walker) complete() bool {
	return w.state == ended || w.state == inScalar && w.depth == 0
}

func (w *walker) write(p []byte) {
	for i := 0; i < len(p); {
		switch w.state {
		case inString:
			i = w.readString(p, i)
		case inScalar:
			i = w.readScalar(p, i)
		case skipping:
			i = w.skipOver(p, i)
		case broken:
			return
		default:
			if i = skipSpace(p, i); i == len(p) {
				return
			}
			if end := w.whole(p, i); end > 0 {
				i = end
				continue
			}
			w.mark(p[i])
			i++
		}
	}
}

// mark takes a byte between values.
func (w *walker) mark(c byte) {
	switch {
	case w.state == wantValue && (c != ']' || !w.inArray()):
		w.begin(c)
	case w.state == wantKey && c == '"':
		w.beginString(true)
	case w.state == wantColon && c == ':':
		w.state = wantValue
	case w.state == wantComma && c == ',':
		w.next()
	case c == '}' && (w.state == wantKey || w.state == wantComma) && w.depth > 0 && !w.inArray():
		w.pop()
	case c == ']' && (w.state == wantValue || w.state == wantComma) && w.inArray():
		w.pop()
	default:
		w.state = broken
	}
}

// next prepares for what follows an opening bracket or a comma.
func (w *walker) next() {
	if w.inArray() {
		w.state, w.slot = wantValue, element(w.open[w.depth-1])
		return
	}
	w.state = wantKey
}

func (w *walker) inArray() bool { return w.depth > 0 && w.open[w.depth-1].isArray() }

// begin takes the first byte of a value.
func (w *walker) begin(c byte) {
	switch {
	case c == '"':
		w.beginString(false)
	case c == '{' || c == '[':
		w.beginContainer(c)
	case beginsScalar(c):
		w.state, w.length = inScalar, 0
		w.keep(c)
	default:
		w.state = broken
	}
}

func (w *walker) beginContainer(c byte) {
	w.found.container(w.slot, c)
	if w.slot == text && c == '[' {
		w.slot = contents // text in parts
	}
	if c == '{' && w.slot.isObject() || c == '[' && w.slot.isArray() {
		w.open[w.depth] = w.slot
		w.depth++
		w.next()
		return
	}
	w.state, w.skip = skipping, 1
}

func (w *walker) pop() {
	w.depth--
	w.end()
}

// end is called after each value.
func (w *walker) end() {
	w.state = wantComma
	if w.depth == 0 {
		w.state = ended
	}
}

// skipOver passes by a container that means nothing.
func (w *walker) skipOver(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch p[i] {
		case '"':
			if stop, _ := stringStop(p, i+1); stop < len(p) && p[stop] == '"' {
				i = stop
				continue
			}
			w.beginString(false)
			return i + 1
		case '{', '[':
			w.skip++
		case '}', ']':
			if w.skip--; w.skip == 0 {
				w.end()
				return i + 1
			}
		}
	}
	return i
}

func (w *walker) beginString(key bool) {
	w.state, w.inKey, w.slashed, w.some, w.length = inString, key, false, false, 0
}

// readString goes on in a string; the opening quote is past.
func (w *walker) readString(p []byte, i int) int {
	if w.escaped {
		w.escaped = false
		w.keep(p[i])
		return i + 1
	}
	stop, _ := stringStop(p, i)
	w.keepAll(p[i:stop])
	if stop == len(p) {
		return stop
	}
	switch p[stop] {
	case '"':
		w.endString()
	case '\\':
		w.escaped, w.slashed = true, true
		w.keep('\\')
	default:
		w.state = broken
	}
	return stop + 1
}

func (w *walker) endString() {
	switch {
	case w.inKey:
		w.state, w.slot = wantColon, w.keySlot()
	case w.skip > 0:
		w.state = skipping
	default:
		w.found.str(w.op, w.slot, w.token(), w.some)
		w.end()
	}
}

// keySlot says what the key just read means.
func (w *walker) keySlot() slot {
	parent := w.open[w.depth-1]
	switch {
	case w.length > len(w.kept):
		return ignored
	case !w.slashed:
		return child(w.op, parent, w.token())
	}
	var room [len(w.kept)]byte
	key, _ := unescape(room[:0], w.token())
	return child(w.op, parent, key)
}

// readScalar goes on in a number, true, false or null.
func (w *walker) readScalar(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch c := p[i]; {
		case inScalarSet[c]:
			w.keep(c)
		case endsScalar(c):
			w.found.scalar(w.slot, w.token(), w.length > len(w.kept))
			w.end()
			return i
		default:
			w.state = broken
			return i
		}
	}
	return i
}

func (w *walker) keep(c byte) {
	w.some = true
	if w.length < len(w.kept) {
		w.kept[w.length] = c
	}
	w.length = min(w.length, len(w.kept)) + 1
}

func (w *walker) keepAll(p []byte) {
	w.some = w.some || len(p) > 0
	if w.length <= len(w.kept) {
		copy(w.kept[w.length:], p)
		w.length = min(w.length+len(p), len(w.kept)+1)
	}
}

func (w *walker) token() []byte { return w.kept[:min(w.length, len(w.kept))] }
