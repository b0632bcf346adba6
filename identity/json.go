package identity

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// appendJSON writes s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
	}
	return append(b, '"')
}

var errJSON = errors.New("not a flat JSON object")

// flat reads a JSON object whose values are strings, whole numbers and lists of strings: all that a context needs. It is
// stricter than encoding/json: names are compared as they are, none may come twice, and nothing may follow.
type flat struct {
	text string
	at   int
}

// members calls each for every member, with the reader before its value, which each must take.
func (f *flat) members(each func(name string) error) error {
	if !utf8.ValidString(f.text) || !f.take('{') {
		return errJSON
	}
	var space [16]string
	seen := space[:0]
	for first := true; !f.take('}'); first = false {
		if !first && !f.take(',') {
			return errJSON
		}
		name, err := f.string()
		if err != nil || slices.Contains(seen, name) || len(seen) == maxMembers || !f.take(':') {
			return errJSON
		}
		seen = append(seen, name)
		if err := each(name); err != nil {
			return err
		}
	}
	f.space()
	if f.at != len(f.text) {
		return errJSON
	}
	return nil
}

// maxMembers bounds the search for names that come twice.
const maxMembers = 32

func (f *flat) space() {
	for f.at < len(f.text) && (f.text[f.at] == ' ' || f.text[f.at] == '\t' || f.text[f.at] == '\n' || f.text[f.at] == '\r') {
		f.at++
	}
}

// take reads one character, after white space.
func (f *flat) take(c byte) bool {
	f.space()
	if f.at < len(f.text) && f.text[f.at] == c {
		f.at++
		return true
	}
	return false
}

// string reads a string; one without escapes shares the text's memory.
func (f *flat) string() (string, error) {
	if !f.take('"') {
		return "", errJSON
	}
	begin, escaped := f.at, false
	for ; f.at < len(f.text); f.at++ {
		switch c := f.text[f.at]; {
		case c == '"':
			f.at++
			if !escaped {
				return f.text[begin : f.at-1], nil
			}
			var s string
			if json.Unmarshal([]byte(f.text[begin-1:f.at]), &s) != nil {
				return "", errJSON
			}
			return s, nil
		case c == '\\':
			escaped = true
			f.at++
		case c < 0x20:
			return "", errJSON
		}
	}
	return "", errJSON
}

// integer reads a whole number that is not negative, in its one plain form.
func (f *flat) integer() (uint64, error) {
	f.space()
	begin := f.at
	for f.at < len(f.text) && f.text[f.at] >= '0' && f.text[f.at] <= '9' {
		f.at++
	}
	digits := f.text[begin:f.at]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		return 0, errJSON
	}
	return n, nil
}

// strings reads a string, or a list of strings.
func (f *flat) strings() ([]string, error) {
	if !f.take('[') {
		s, err := f.string()
		return []string{s}, err
	}
	var list []string
	for !f.take(']') {
		if len(list) > 0 && !f.take(',') {
			return nil, errJSON
		}
		s, err := f.string()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// skip passes over a value of the kinds that are read here, of a claim that a later release may add.
func (f *flat) skip() error {
	f.space()
	if f.at < len(f.text) && f.text[f.at] >= '0' && f.text[f.at] <= '9' {
		_, err := f.integer()
		return err
	}
	_, err := f.strings()
	return err
}
