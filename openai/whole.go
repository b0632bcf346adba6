package openai

// whole takes a string without escapes, or a scalar, that lies whole in p, where it lies. 0: there is none at i, and the byte
// is taken by itself. Almost everything in a stream's events is whole.
func (w *walker) whole(p []byte, i int) (end int) {
	switch c := p[i]; {
	case c == '"' && (w.state == wantKey || w.state == wantValue):
		stop, _ := stringStop(p, i+1)
		if stop == len(p) || p[stop] != '"' {
			return 0
		}
		if w.state == wantValue {
			w.found.str(w.op, w.slot, p[i+1:stop], stop > i+1)
			return w.endWhole(p, stop+1)
		}
		w.slot = child(w.op, w.open[w.depth-1], p[i+1:stop])
		if w.state = wantColon; stop+1 < len(p) && p[stop+1] == ':' {
			w.state = wantValue
			return stop + 2
		}
		return stop + 1
	case w.state == wantValue && beginsScalar(c):
		end = i + 1
		for end < len(p) && inScalarSet[p[end]] {
			end++
		}
		if end == len(p) || end-i > len(w.kept) || !endsScalar(p[end]) {
			return 0
		}
		w.found.scalar(w.slot, p[i:end], false)
		return w.endWhole(p, end)
	}
	return 0
}

// endWhole ends a value, and takes the comma behind it.
func (w *walker) endWhole(p []byte, i int) int {
	if w.end(); w.state == wantComma && i < len(p) && p[i] == ',' {
		w.next()
		i++
	}
	return i
}

func beginsScalar(c byte) bool {
	return '0' <= c && c <= '9' || c == 'n' || c == 't' || c == 'f' || c == '-'
}

// inScalarSet are the bytes of numbers, true, false and null.
var inScalarSet = func() (set [256]bool) {
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyz.-+E" {
		set[c] = true
	}
	return set
}()

func endsScalar(c byte) bool { return c == ',' || c == '}' || c == ']' || isSpace(c) }
