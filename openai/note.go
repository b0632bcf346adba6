package openai

import (
	"bytes"
	"strconv"
)

// A note is a report as JSON: a worker's shim writes one behind the data of each event of a stream, before its blank line, as a
// comment that begins with UsageComment, and in a header of an answer that is whole. What is unknown, false or none is absent:
//
//	prompt_tokens, cached_tokens, reasoning_tokens
//	completion_tokens    if the engine counted it
//	events               if the completion was counted from what passed: those with content
//	terminal, failed, cut
//	anomalies            a list of names
//	bytes                of an answer that is whole: the length of its body
//
// The engine has counted what a note tells, unless it has events.

// MaxNote is the longest line that a note makes in a stream, in bytes, with all that belongs to it.
const MaxNote = 300

// AppendNote appends the note of a report that a Meter made. size is the length of an answer that is whole; 0: it is a stream.
func AppendNote(b []byte, r *Report, size int64) []byte {
	a := accountOf(r)
	return a.append(b, size)
}

// AppendNote appends the note of what the response has said so far. It allocates nothing.
func (m *Meter) AppendNote(b []byte) []byte {
	a := m.tally.account(m.op, m.lines != nil)
	return a.append(b, 0)
}

func (a *account) append(b []byte, size int64) []byte {
	start := len(b)
	b = a.prompt.append(b, `,"prompt_tokens":`)
	b = a.cached.append(b, `,"cached_tokens":`)
	switch a.from {
	case countedEngine:
		b = a.completion.append(b, `,"completion_tokens":`)
	case countedEvents:
		b = count{a.events, true}.append(b, `,"events":`)
	}
	b = a.reasoning.append(b, `,"reasoning_tokens":`)
	b = appendTrue(b, `,"terminal":true`, a.terminal)
	b = appendTrue(b, `,"failed":true`, a.failed)
	b = appendTrue(b, `,"cut":true`, a.cut)
	b = a.doubts.append(b)
	b = count{size, size > 0}.append(b, `,"bytes":`)
	if len(b) == start {
		b = append(b, '{')
	}
	b[start] = '{'
	return append(b, '}')
}

func (c count) append(b []byte, name string) []byte {
	if !c.known {
		return b
	}
	return strconv.AppendInt(append(b, name...), c.n, 10)
}

func appendTrue(b []byte, member string, so bool) []byte {
	if !so {
		return b
	}
	return append(b, member...)
}

func (d doubts) append(b []byte) []byte {
	if d == 0 {
		return b
	}
	b = append(b, `,"anomalies":`...)
	start := len(b)
	for i, name := range doubtNames {
		if d&(1<<i) != 0 {
			b = append(append(append(b, ',', '"'), name...), '"')
		}
	}
	b[start] = '['
	return append(b, ']')
}

// ReadNote reads a note of an answer to op: the report that was written, but for Events, which a note tells only where the
// completion was counted from them, and the length of the body, 0 where it tells none. It trusts nothing: of what is not as
// AppendNote writes it, it takes what it can, and reports bad_usage. What it does not know it passes by.
func ReadNote(op Op, b []byte) (r Report, size int64) {
	n := noteReader{scanner: scanner{b: b}}
	n.read()
	a := &n.account
	switch {
	case a.completion.known:
		a.from, a.events = countedEngine, 0
	case a.events > 0 && op != Embeddings:
		a.completion, a.from = count{a.events, true}, countedEvents
	case a.known():
		a.from = countedEngine
	default:
		a.from = countedNone
	}
	if op == Embeddings {
		a.completion, a.events = count{0, true}, 0
	}
	a.failed = a.failed || a.cut
	a.cutParts()
	return a.report(), n.size
}

// noteReader takes the members of a note as the scanner finds them.
type noteReader struct {
	scanner
	account account
	size    int64
}

func (n *noteReader) read() {
	if n.space() != '{' || n.members(1, 0, n.take) != nil {
		n.account.doubts |= badUsage
		return
	}
	if n.space(); n.i < len(n.b) {
		n.account.doubts |= badUsage
	}
}

func (n *noteReader) take(key, value Span) *Error {
	a, v := &n.account, n.b[value.Start:value.End]
	switch string(n.b[key.Start:key.End]) {
	case `"prompt_tokens"`:
		n.count(&a.prompt, v)
	case `"cached_tokens"`:
		n.count(&a.cached, v)
	case `"completion_tokens"`:
		n.count(&a.completion, v)
	case `"reasoning_tokens"`:
		n.count(&a.reasoning, v)
	case `"events"`:
		n.number(&a.events, v)
	case `"bytes"`:
		n.number(&n.size, v)
	case `"terminal"`:
		n.flag(&a.terminal, v)
	case `"failed"`:
		n.flag(&a.failed, v)
	case `"cut"`:
		n.flag(&a.cut, v)
	case `"anomalies"`:
		n.doubts(v)
	}
	return nil
}

func (n *noteReader) count(to *count, v []byte) {
	if to.known = n.number(&to.n, v); !to.known {
		to.n = 0
	}
}

// number reads a whole number of what a response can have.
func (n *noteReader) number(to *int64, v []byte) bool {
	read, ok := parseCount(v)
	*to = read
	if !ok {
		*to = 0
		n.account.doubts |= badUsage
	}
	return ok
}

func (n *noteReader) flag(to *bool, v []byte) {
	*to = string(v) == "true"
	n.account.doubts.noteIf(badUsage, !*to && string(v) != "false")
}

func (n *noteReader) doubts(list []byte) {
	if list[0] != '[' {
		n.account.doubts |= badUsage
		return
	}
	Each(list, func(_, v []byte) bool {
		d := doubtOf(string(bytes.Trim(v, `"`)))
		n.account.doubts |= d
		n.account.doubts.noteIf(badUsage, d == 0)
		return true
	})
}
