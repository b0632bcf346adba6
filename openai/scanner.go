package openai

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner checks JSON by the letter of RFC 8259, and notes what it says on the way. It moves forward only, and allocates
// nothing but an error.
type scanner struct {
	b []byte
	i int

	prompt  PromptSize
	prompts int64 // in a list of prompts
	remote  bool
}

// peek returns the next byte, 0 at the end (0 is no part of JSON).
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// space skips white space and returns the next byte.
func (s *scanner) space() byte {
	s.i = skipSpace(s.b, s.i)
	return s.peek()
}

// value checks the value that starts here. depth is the number of containers around it.
func (s *scanner) value(depth int, at place) *Error {
	switch c := s.peek(); {
	case c == '"':
		start := s.i + 1
		size, err := s.str()
		if at != 0 && err == nil {
			s.took(at, s.b[start:s.i-1], size)
		}
		return err
	case c == '{':
		return s.members(depth+1, at, nil)
	case c == '[':
		return s.elements(depth+1, at)
	case c == '-' || '0' <= c && c <= '9':
		if at&counted != 0 {
			s.prompt.Tokens++
		}
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail("", "expected a value, found "+s.found())
}

// members checks the object that starts here and calls take, if given, after each of its members.
func (s *scanner) members(depth int, at place, take func(key, value Span) *Error) *Error {
	if depth > MaxDepth {
		return s.tooDeep()
	}
	s.i++
	if s.space() == '}' {
		s.i++
		return nil
	}
	for {
		if err := s.member(depth, at, take); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
			s.space()
		case '}':
			s.i++
			return nil
		default:
			return s.fail("", "expected ',' or '}', found "+s.found())
		}
	}
}

func (s *scanner) member(depth int, at place, take func(key, value Span) *Error) *Error {
	if s.peek() != '"' {
		return s.fail("", "expected a key, found "+s.found())
	}
	key := Span{Start: s.i}
	if _, err := s.str(); err != nil {
		return err
	}
	key.End = s.i
	if s.space() != ':' {
		return s.fail("", "expected ':', found "+s.found())
	}
	s.i++
	s.space()
	value := Span{Start: s.i}
	at = s.memberAt(at, s.b[key.Start+1:key.End-1])
	if err := s.value(depth, at&^verbatim); err != nil {
		return err
	}
	value.End = s.i
	if at&verbatim != 0 {
		s.prompt.Text += int64(value.End - value.Start)
	}
	if take == nil {
		return nil
	}
	return take(key, value)
}

// elements checks the array that starts here.
func (s *scanner) elements(depth int, at place) *Error {
	if depth > MaxDepth {
		return s.tooDeep()
	}
	s.i++
	if s.space() == ']' {
		s.i++
		return nil
	}
	for each := at.element(); ; {
		if c := s.peek(); at&several != 0 && (c == '"' || c == '[') {
			s.prompts++
		}
		if err := s.value(depth, each); err != nil {
			return err
		}
		switch s.space() {
		case ',':
			s.i++
			s.space()
		case ']':
			s.i++
			return nil
		default:
			return s.fail("", "expected ',' or ']', found "+s.found())
		}
	}
}

// str checks the string that starts here, and returns how many bytes it decodes to.
func (s *scanner) str() (size int, err *Error) {
	start, ascii, saved := s.i, true, 0
	for s.i++; ; {
		stop, high := stringStop(s.b, s.i)
		ascii = ascii && !high
		s.i = stop
		switch c := s.peek(); {
		case c == '"':
			s.i++
			if ascii || utf8.Valid(s.b[start:s.i]) {
				return s.i - start - 2 - saved, nil
			}
			return 0, s.notUTF8(start)
		case c == '\\':
			less, err := s.escape()
			if err != nil {
				return 0, err
			}
			saved += less
		case s.i == len(s.b):
			return 0, s.failAt(start, "", "a string that does not end")
		default:
			return 0, s.fail("", "a control character in a string")
		}
	}
}

// escape checks the escape sequence that starts here, and returns how much longer it is than what it stands for.
func (s *scanner) escape() (saved int, err *Error) {
	if s.i+1 < len(s.b) {
		switch s.b[s.i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.i += 2
			return 1, nil
		}
	}
	r, ok := hex4(s.b[s.i:])
	if !ok {
		return 0, s.fail("", "a bad escape sequence")
	}
	s.i += 6
	if utf16.IsSurrogate(r) { // two of them make four bytes; one alone is rare
		return 4, nil
	}
	return 6 - utf8.RuneLen(r), nil
}

// number checks the number that starts here.
func (s *scanner) number() *Error {
	start := s.i
	if s.peek() == '-' {
		s.i++
	}
	ok := true
	if s.peek() == '0' {
		s.i++
	} else {
		ok = s.digits()
	}
	if ok && s.peek() == '.' {
		s.i++
		ok = s.digits()
	}
	if c := s.peek(); ok && (c == 'e' || c == 'E') {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		ok = s.digits()
	}
	if !ok {
		return s.failAt(start, "", "a malformed number")
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

func (s *scanner) literal(want string) *Error {
	if len(s.b)-s.i < len(want) || string(s.b[s.i:s.i+len(want)]) != want {
		return s.fail("", "expected "+want)
	}
	s.i += len(want)
	return nil
}

// found names the next byte for a message.
func (s *scanner) found() string {
	switch c := s.peek(); {
	case s.i >= len(s.b):
		return "the end"
	case c > ' ' && c < 0x7f:
		return "'" + string(rune(c)) + "'"
	default:
		return fmt.Sprintf("byte 0x%02x", c)
	}
}

// notUTF8 points at the first bad byte of the string that starts at i.
func (s *scanner) notUTF8(i int) *Error {
	for i < len(s.b) {
		r, n := utf8.DecodeRune(s.b[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return s.failAt(i, "", "text that is not UTF-8")
}

func (s *scanner) tooDeep() *Error {
	return s.fail("", fmt.Sprintf("nesting deeper than %d", MaxDepth))
}

func (s *scanner) fail(param, what string) *Error { return s.failAt(s.i, param, what) }

func (s *scanner) failAt(i int, param, what string) *Error {
	return InvalidBody(param, fmt.Sprintf("Invalid request body: %s, at byte %d.", what, i))
}
