package openai

// findings are what one JSON value says that a meter wants to know.
type findings struct {
	counts   [counters]int64
	has      [counters]bool
	choices  int   // elements of choices
	index    int64 // of the choice, if there is one only
	content  bool  // something generated
	terminal bool
	failed   bool
	cut      bool   // the error's code is upstream_cut
	bad      bool   // a count that is not one
	doubts   doubts // that a note has
}

func (f *findings) get(s slot) (int64, bool) { return f.counts[s], f.has[s] }
func (f *findings) set(s slot, n int64)      { f.counts[s], f.has[s] = n, true }
func (f *findings) drop(s slot)              { f.counts[s], f.has[s] = 0, false }

// merge takes the counts that later has, and what it doubts.
func (f *findings) merge(later *findings) {
	for s := range f.counts {
		if later.has[s] {
			f.set(slot(s), later.counts[s])
		}
	}
	f.bad, f.doubts = f.bad || later.bad, later.doubts
}

// under takes the counts that earlier has and f has not.
func (f *findings) under(earlier *findings) {
	for s := range f.counts {
		if earlier.has[s] && !f.has[s] {
			f.set(slot(s), earlier.counts[s])
		}
	}
	f.bad = f.bad || earlier.bad
}

// maxCount is the largest count believed: the largest whole number that every JSON reader holds exactly.
const maxCount = 1<<53 - 1

// container notes that a value is an object or an array; c is its bracket.
func (f *findings) container(s slot, c byte) {
	switch {
	case s < counters, s.isUsage() && c == '[':
		f.bad = true
	case s == choice && c == '{':
		f.choices++
	case s == errorObject:
		f.failed = true
	case s == content && c == '{':
		f.content = true
	}
}

// str notes a string; some says that it is not empty. kept is its beginning, as written.
func (f *findings) str(op Op, s slot, kept []byte, some bool) {
	switch {
	case s < counters, s.isUsage():
		f.bad = true
	case s == text || s == content:
		f.content = f.content || some
	case s == errorObject:
		f.failed = f.failed || some
	case s == errorCode:
		f.cut = f.cut || string(kept) == CodeUpstreamCut
	case s == anomaly:
		f.doubts |= doubtOf(string(kept))
	case s == eventType || s == objectType:
		f.event(op, s, kept)
	}
}

func (f *findings) event(op Op, s slot, name []byte) {
	switch string(name) {
	case "error":
		f.failed = true
	case "message_stop":
		f.terminal = f.terminal || op == Messages && s == eventType
	case "response.completed", "response.incomplete":
		f.terminal = f.terminal || op == Responses && s == eventType
	case "response.failed":
		if op == Responses && s == eventType {
			f.terminal, f.failed = true, true
		}
	}
}

// scalar notes a number, true, false or null. long says that raw is only its beginning.
func (f *findings) scalar(s slot, raw []byte, long bool) {
	null := string(raw) == "null"
	switch {
	case s < counters:
		n, ok := parseCount(raw)
		if ok && !long {
			f.set(s, n)
		}
		f.bad = f.bad || !null && (!ok || long)
	case s.isUsage():
		f.bad = f.bad || !null
	case s == errorObject:
		f.failed = f.failed || !null && string(raw) != "false" && string(raw) != "0"
	case s == choiceIndex:
		if n, ok := parseCount(raw); ok && !long {
			f.index = n
		}
	}
}

// parseCount reads a whole number of tokens.
func parseCount(raw []byte) (int64, bool) {
	if len(raw) == 0 || len(raw) > 16 || raw[0] == '0' && len(raw) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= maxCount
}
