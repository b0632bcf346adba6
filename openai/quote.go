package openai

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Unquote appends the decoded form of raw, a JSON string as written, with its quotes. A lone surrogate becomes U+FFFD. What
// is not a string as [Scan] accepts it adds nothing.
func Unquote(dst, raw []byte) []byte {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return dst
	}
	dst, _ = unescape(dst, raw[1:len(raw)-1])
	return dst
}

// unescape appends the decoded form of what stands between a string's quotes. clean is false when there was a lone
// surrogate.
func unescape(dst, s []byte) (out []byte, clean bool) {
	clean = true
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			return append(dst, s...), clean
		}
		dst = append(dst, s[:i]...)
		s = s[i:]
		if s[1] == 'u' {
			r, n := unicodeEscape(s)
			clean = clean && (r != utf8.RuneError || isReplacement(s))
			dst = utf8.AppendRune(dst, r)
			s = s[n:]
		}
		for len(s) > 1 && s[0] == '\\' && s[1] != 'u' { // in rows, as indents are
			dst = append(dst, escaped(s[1]))
			s = s[2:]
		}
	}
}

func escaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return c
	}
}

// unicodeEscape decodes \uXXXX, or two of them that form a surrogate pair, at the start of s, and says how many bytes that
// took.
func unicodeEscape(s []byte) (r rune, n int) {
	r, ok := hex4(s)
	if !ok {
		return utf8.RuneError, min(6, len(s))
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if low, ok := hex4(s[6:]); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

func isReplacement(s []byte) bool {
	r, ok := hex4(s)
	return ok && r == utf8.RuneError
}

// hex4 reads \uXXXX at the start of s.
func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		v, ok := hexValue(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | v
	}
	return r, true
}

func hexValue(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	default:
		return 0, false
	}
}

// appendQuoted appends s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r < 0x20 || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendQuoted(dst, s)
}
