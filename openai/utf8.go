package openai

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// validUTF8 is utf8.Valid, faster on text that is mostly not ASCII: it checks two characters of three bytes at once, as most
// are in the scripts that have no other.
func validUTF8(b []byte) bool {
	i := 0
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i : i+8])
		if n := bits.TrailingZeros64(w&highs) >> 3; n > 0 {
			i += n // ASCII
			continue
		}
		if w&0xC0C0F0C0C0F0 == 0x8080E08080E0 { // twice 1110xxxx 10xxxxxx 10xxxxxx
			if short(w) || short(w>>24) {
				return false
			}
			i += 6
			continue
		}
		_, n := utf8.DecodeRune(b[i:])
		if n == 1 {
			return false
		}
		i += n
	}
	return utf8.Valid(b[i:])
}

// short says that the first three bytes of w stand for what needs fewer, or for a surrogate.
func short(w uint64) bool {
	w &= 0x200F
	return w == 0 || w == 0x200D
}
