package openai

import (
	"fmt"
	"unicode/utf8"
)

// scanner checks JSON by the letter of RFC 8259. It moves forward only, and allocates nothing but an error.
type scanner struct {
	b []byte
	i int
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
func (s *scanner) value(depth int) *Error {
	switch c := s.peek(); {
	case c == '"':
		return s.str()
	case c == '{':
		return s.members(depth+1, nil)
	case c == '[':
		return s.elements(depth + 1)
	case c == '-' || '0' <= c && c <= '9':
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
func (s *scanner) members(depth int, take func(key, value Span) *Error) *Error {
	if depth > MaxDepth {
		return s.tooDeep()
	}
	s.i++
	if s.space() == '}' {
		s.i++
		return nil
	}
	for {
		if err := s.member(depth, take); err != nil {
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

func (s *scanner) member(depth int, take func(key, value Span) *Error) *Error {
	if s.peek() != '"' {
		return s.fail("", "expected a key, found "+s.found())
	}
	key := Span{Start: s.i}
	if err := s.str(); err != nil {
		return err
	}
	key.End = s.i
	if s.space() != ':' {
		return s.fail("", "expected ':', found "+s.found())
	}
	s.i++
	s.space()
	value := Span{Start: s.i}
	if err := s.value(depth); err != nil || take == nil {
		return err
	}
	value.End = s.i
	return take(key, value)
}

// elements checks the array that starts here.
func (s *scanner) elements(depth int) *Error {
	if depth > MaxDepth {
		return s.tooDeep()
	}
	s.i++
	if s.space() == ']' {
		s.i++
		return nil
	}
	for {
		if err := s.value(depth); err != nil {
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

// str checks the string that starts here.
func (s *scanner) str() *Error {
	start, ascii := s.i, true
	for s.i++; ; {
		stop, high := stringStop(s.b, s.i)
		ascii = ascii && !high
		s.i = stop
		switch c := s.peek(); {
		case c == '"':
			s.i++
			if ascii || utf8.Valid(s.b[start:s.i]) {
				return nil
			}
			return s.notUTF8(start)
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case s.i == len(s.b):
			return s.failAt(start, "", "a string that does not end")
		default:
			return s.fail("", "a control character in a string")
		}
	}
}

// escape checks the escape sequence that starts here.
func (s *scanner) escape() *Error {
	if s.i+1 < len(s.b) {
		switch s.b[s.i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.i += 2
			return nil
		}
	}
	if _, ok := hex4(s.b[s.i:]); ok {
		s.i += 6
		return nil
	}
	return s.fail("", "a bad escape sequence")
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
