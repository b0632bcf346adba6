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

// space skips white space and returns the next byte. Mostly there is none: that way it is inlined.
func (s *scanner) space() byte {
	if s.i < len(s.b) && s.b[s.i] > ' ' {
		return s.b[s.i]
	}
	return s.skipSpace()
}

func (s *scanner) skipSpace() byte {
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
	start, saved, broken := s.i, 0, false
	for i := start + 1; ; {
		stop, high := stringStop(s.b, i)
		// It is told at the end of the string: what breaks off first, breaks off.
		broken = broken || high && !validUTF8(s.b[i:stop])
		for i = stop; i+1 < len(s.b) && s.b[i] == '\\' && plainEscape[s.b[i+1]]; i += 2 { // in rows, as indents are
			saved++
		}
		if i > stop {
			continue
		}
		s.i = stop
		switch c := s.peek(); {
		case c == '"':
			s.i++
			if broken {
				return 0, s.notUTF8(start)
			}
			return s.i - start - 2 - saved, nil
		case c == '\\':
			less, err := s.unicodeEscape()
			if err != nil {
				return 0, err
			}
			saved += less
			i = s.i
		case s.i == len(s.b):
			return 0, s.failAt(start, "", "a string that does not end")
		default:
			return 0, s.fail("", "a control character in a string")
		}
	}
}

// plainEscape has what may follow a backslash, but for u.
var plainEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// unicodeEscape checks the escape sequence that starts here, and returns how much longer it is than what it stands for.
func (s *scanner) unicodeEscape() (saved int, err *Error) {
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
	start, i := s.i, s.i
	if s.b[i] == '-' {
		i++
	}
	if i < len(s.b) && s.b[i] == '0' {
		i++
	} else if i = digits(s.b, i); i < 0 {
		return s.failAt(start, "", malformedNumber)
	}
	if i < len(s.b) && s.b[i] == '.' {
		if i = digits(s.b, i+1); i < 0 {
			return s.failAt(start, "", malformedNumber)
		}
	}
	if i < len(s.b) && s.b[i]|0x20 == 'e' {
		if i++; i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		if i = digits(s.b, i); i < 0 {
			return s.failAt(start, "", malformedNumber)
		}
	}
	if i-start > MaxNumber {
		return s.failAt(start, "", fmt.Sprintf("a number of more than %d characters", MaxNumber))
	}
	s.i = i
	return nil
}

const malformedNumber = "a malformed number"

// digits returns the position after the digits at i; below 0: there are none.
func digits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
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
