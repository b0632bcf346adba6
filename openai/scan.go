package openai

import (
	"bytes"
	"slices"
)

// Bounds of a body that Scan accepts. They keep the work and the memory that a hostile body can cause in proportion to its
// size.
const (
	MaxDepth   = 128 // nesting, the body's own object counted
	MaxMembers = 256 // members of the top level
	MaxName    = 256 // bytes of a decoded top-level name, and of the model
	MaxN       = 128 // choices

	// MaxNumber is the characters of a number. Python reads whole numbers of 4300 digits at most.
	MaxNumber = 1024
)

// Scan reads a request body strictly, in one pass. It refuses (400 invalid_body; the message says what and at which byte,
// from 0) a body that
//   - is not one JSON object in UTF-8, without a byte order mark and with nothing after it, nests deeper than MaxDepth, or has
//     a number of more than MaxNumber characters;
//   - has two keys at the top level or in stream_options that are equal after unescaping and Unicode simple case folding, or
//     one that differs only in case from a name that the API or an engine knows, or one with a lone surrogate;
//   - has no model, or one that is not a string of 1 to MaxName bytes without lone surrogates;
//   - has a stream that is not a boolean, a max_tokens, max_completion_tokens, max_output_tokens, n or best_of that is not an
//     integer written as digits, an n or best_of outside 1 to MaxN, or a stream_options that is not an object of the
//     booleans include_usage and include_obfuscation;
//   - asks to be answered in the background, where nobody could count it.
//
// null stands for "not given" in stream, stream_options, n, best_of, background and the token limits, as the API documents
// it; never in model. Deeper levels must be valid JSON; what they say is between client and engine.
func Scan(op Op, body []byte) (*Request, *Error) {
	one := &struct { // allocation
		Request
		room [12]Member // enough for most
	}{}
	r := &one.Request
	r.Op, r.Members = op, one.room[:0]
	t := taker{scanner: scanner{b: body}, r: r}
	s := &t.scanner
	if bytes.HasPrefix(body, []byte("\uFEFF")) {
		return nil, s.fail("", "a byte order mark")
	}
	if s.space() != '{' {
		return nil, s.fail("", "the body must be one JSON object, found "+s.found())
	}
	if err := s.members(1, top, t.take); err != nil {
		return nil, err
	}
	if s.space(); s.i < len(body) {
		return nil, s.fail("", "data after the JSON object")
	}
	if r.Model == "" {
		return nil, InvalidBody("model", "Invalid request body: you must name a model.")
	}
	r.Prompt, r.Remote, r.prompts = s.prompt, s.remote, s.prompts
	return r, nil
}

// taker keeps what the top level says as the scanner passes by.
type taker struct {
	scanner
	r      *Request
	folded names
}

// take is called for each member of the top level, after its value was found to be valid.
func (t *taker) take(key, value Span) *Error {
	if len(t.r.Members) == MaxMembers {
		return t.failAt(key.Start, "", "too many members (at most 256)")
	}
	name, err := t.folded.add(&t.scanner, key)
	if err != nil {
		return err
	}
	t.r.Members = append(t.r.Members, Member{Name: name, Key: key, Value: value})
	return t.field(name, value)
}

// names are the keys of one object, folded. Few enough to compare one by one. The first ones have room here, without a slice
// of it, which would put them on the heap.
type names struct {
	first [12]string
	n     int // of first
	more  []string
}

func (n *names) has(name string) bool {
	for i := range n.n {
		if n.first[i] == name {
			return true
		}
	}
	return slices.Contains(n.more, name)
}

// add decodes a key and refuses it when it, or one that some parser would take for it, was there before.
func (n *names) add(s *scanner, key Span) (string, *Error) {
	name, ok := s.name(key)
	if !ok {
		return "", s.failAt(key.Start, "", "a key that is too long or has a lone surrogate")
	}
	f := fold(name)
	if f != name && known[f] != "" {
		return "", s.failAt(key.Start, f, "a key that differs only in case from '"+f+"'")
	}
	if n.has(f) {
		return "", s.failAt(key.Start, name, "a duplicate key '"+echo(name)+"'")
	}
	if n.n < len(n.first) {
		n.first[n.n] = f
		n.n++
	} else {
		n.more = append(n.more, f)
	}
	return name, nil
}

// name decodes a key at span. Names that are known cost no allocation.
func (s *scanner) name(key Span) (string, bool) {
	raw := s.b[key.Start+1 : key.End-1]
	if name := known[string(raw)]; name != "" {
		return name, true
	}
	return s.text(key)
}

// text decodes the string at span; false: longer than MaxName or with a lone surrogate.
func (s *scanner) text(v Span) (string, bool) {
	raw := s.b[v.Start+1 : v.End-1]
	if len(raw) > 6*MaxName {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), len(raw) <= MaxName
	}
	var room [6 * MaxName]byte
	out, clean := unescape(room[:0], raw)
	return string(out), clean && len(out) <= MaxName
}
