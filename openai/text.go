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
// control character; len(b) when there is none. high says whether a byte before it is not ASCII. Prompts are most of what a
// door reads, and have long runs.
func stringStop(b []byte, i int) (stop int, high bool) {
	stop, high = shortStop(b[:min(i+shortRun, len(b))], i)
	if stop < i+shortRun {
		return stop, high
	}
	at, passed := skipPlain(b, stop)
	stop, last := shortStop(b, at)
	return stop, high || passed || last
}

// shortRun is how much of a run is looked at before it is taken for a long one: most are keys and numbers.
const shortRun = 32

// shortStop is stringStop for what is short, eight bytes a step.
func shortStop(b []byte, i int) (stop int, high bool) {
	var seen uint64
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i : i+8])
		if m := stops(w); m != 0 {
			n := bits.TrailingZeros64(m) // 8 times the bytes before it, and 7
			return i + n>>3, (seen|w&(1<<(n-7)-1))&highs != 0
		}
		seen |= w
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
// one too many. A quote with 2 turned over is 0x20, a control character less, all other bytes more.
func stops(w uint64) uint64 {
	quote := (w ^ 2*ones) - 0x21*ones
	slash := (w ^ '\\'*ones) - ones
	return (quote | slash) &^ w & highs
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
