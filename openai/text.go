package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stringStop returns the first position from i on that ends the plain run of a JSON string: a quote, a backslash or a
// control character; len(b) when there is none. high is false only if all bytes before it are ASCII. Eight bytes a step:
// prompts are most of what a door reads.
func stringStop(b []byte, i int) (stop int, high bool) {
	var seen uint64
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		seen |= w
		if m := stops(w); m != 0 {
			return i + bits.TrailingZeros64(m)>>3, seen&highs != 0
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < 0x20 {
			break
		}
		seen |= uint64(b[i])
	}
	return i, seen&highs != 0
}

// stops sets the high bit of each byte of w that ends a plain run. The lowest bit set is exact; above it a borrow may set
// one too many.
func stops(w uint64) uint64 {
	quote := w ^ '"'*ones
	slash := w ^ '\\'*ones
	m := (quote - ones) & ^quote
	m |= (slash - ones) & ^slash
	m |= (w - 0x20*ones) & ^w
	return m & highs
}

// stringEnd returns the position after the closing quote of the JSON string whose opening quote is at i; len(b) when it is
// not closed.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		i += q
		back := i
		for b[back-1] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}
