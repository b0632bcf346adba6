package openai

import (
	"bytes"
	"testing"
)

// stringStop finds the first byte that ends a run, at whatever distance, and looks at none behind the end.
func TestStringStop(t *testing.T) {
	const longest = 72
	for n := range longest {
		for _, from := range []int{0, 5} {
			for at := range n {
				for _, c := range []byte{'"', '\\', 0, '\n', 0x1f, ' ', '!', '#', '[', ']', 0x7f, 0x80, 0x9f, 0xa2, 0xdc, 0xff} {
					whole := bytes.Repeat([]byte{'a'}, n+longest)
					whole[at] = c
					copy(whole[n:], "\xff\"")
					b := whole[:n]
					stop, high := stringStop(b, min(from, n))
					if want, wide := stopOf(b, min(from, n)); stop != want || high != wide {
						t.Fatalf("byte %#x at %d of %d: stop %d, high %v from %d on; want %d, %v", c, at, n, stop, high, from, want, wide)
					}
				}
			}
		}
	}
}

// stopOf is stringStop, byte by byte.
func stopOf(b []byte, i int) (stop int, high bool) {
	for ; i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' '; i++ {
		high = high || b[i] >= 0x80
	}
	return i, high
}
