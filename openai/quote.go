package openai

import (
	"encoding/binary"
	"math/bits"
	"slices"
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

// unescape appends the decoded form of what stands between a string's quotes, which is never longer. clean is false when
// there was a lone surrogate. Code has an escape every ten bytes: what is between them is copied eight bytes a step.
func unescape(dst, s []byte) (out []byte, clean bool) {
	clean = true
	at := len(dst)
	dst = slices.Grow(dst, len(s))
	to := dst[at : at+len(s)]
	i, j := 0, 0 // j never passes i
	for i < len(s) {
		if i+8 <= len(s) {
			w := binary.LittleEndian.Uint64(s[i : i+8])
			binary.LittleEndian.PutUint64(to[j:j+8], w) // more than counts, if there is an escape
			n := bits.TrailingZeros64(backslashes(w)) >> 3
			i, j = i+n, j+n
			if n == 8 {
				continue
			}
		} else if s[i] != '\\' {
			to[j] = s[i]
			i, j = i+1, j+1
			continue
		}
		if i+3 > len(s) && (i+1 == len(s) || s[i+1] == 'u') { // cut short: as it is
			j += copy(to[j:], s[i:])
			break
		}
		if s[i+1] != 'u' {
			to[j] = escaped(s[i+1])
			i, j = i+2, j+1
			continue
		}
		r, n := unicodeEscape(s[i:])
		clean = clean && (r != utf8.RuneError || isReplacement(s[i:]))
		j += utf8.EncodeRune(to[j:], r)
		i += n
	}
	return dst[:at+j], clean
}

// backslashes sets the high bit of each byte of w that is a backslash. The lowest bit set is exact.
func backslashes(w uint64) uint64 {
	slash := w ^ '\\'*ones
	return (slash - ones) &^ slash & highs
}

func escaped(c byte) byte {
	if plain := escapes[c]; plain != 0 {
		return plain
	}
	return c
}

var escapes = [256]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

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
