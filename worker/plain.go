package worker

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

const (
	// plainDepth, plainDigits and plainNumber bound what every reader of JSON takes. Envoy's takes no answer that nests a thousand
	// deep, or that has a whole number above the largest int64 or any above the largest float64.
	plainDepth  = 64
	plainDigits = 18
	plainNumber = 64
)

// plain says that whoever reads an answer reads the same of it. Some are read by clients and by our meter alone: engines pass on the
// NaN of a probability, half a character that a client sent, or the largest uint64 of a tool's schema.
func plain(b []byte) bool {
	if !utf8.Valid(b) || !json.Valid(b) || bytes.Contains(b, []byte(`\ud`)) || bytes.Contains(b, []byte(`\uD`)) {
		return false
	}
	if bytes.Count(b, []byte(`"usage"`)) > 1 { // some readers take the last, others both
		return false
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth > plainDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(b) && inNumber(b[end]) {
				end++
			}
			if !small(b[i:end]) {
				return false
			}
			i = end - 1
		}
	}
	return true
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+'
}

// small says that a number is far from the largest that there are.
func small(number []byte) bool {
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		return len(number) <= plainNumber && len(bytes.TrimLeft(number[e+1:], "+-0")) <= 2
	}
	return len(number) <= plainDigits || len(number) <= plainNumber && bytes.IndexByte(number, '.') >= 0
}
