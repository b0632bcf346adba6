package openai

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestValidUTF8 goes through all beginnings of a character, and through text with bytes turned over.
func TestValidUTF8(t *testing.T) {
	check := func(b []byte) {
		t.Helper()
		if got, want := validUTF8(b), utf8.Valid(b); got != want {
			t.Fatalf("%x: %v, want %v", b, got, want)
		}
	}
	for first := 0x80; first < 0x100; first++ {
		for second := range 0x100 {
			for _, third := range []byte{0, 'a', 0x7f, 0x80, 0x9f, 0xbf, 0xc0, 0xff} {
				check([]byte{byte(first), byte(second), third, 0xe4, 0xb8, 0xad, 'y', 'z'})
				check([]byte{0xe4, 0xb8, 0xad, byte(first), byte(second), third, 'y', 'z'})
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	text := []byte("aé中😀, Größe; Привет 网关\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
	for range 50_000 {
		b := append([]byte(nil), text[rng.IntN(len(text)):]...)
		for range rng.IntN(3) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		check(b)
	}
}
