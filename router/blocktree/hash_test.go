package blocktree

import (
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"
)

// TestSumIsXXH3 for each length that has a way of its own, and some more.
func TestSumIsXXH3(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 700)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for n := range b {
		seed := r.Uint64() * uint64(n%3)
		h := newHasher(seed)
		if got, want := h.sum(b[n/2:][:n/2]), xxh3.HashSeed(b[n/2:][:n/2], seed); got != want {
			t.Fatalf("%d bytes: %x, want %x", n/2, got, want)
		}
		if got, want := h.sum(b[:n]), xxh3.HashSeed(b[:n], seed); got != want {
			t.Fatalf("%d bytes: %x, want %x", n, got, want)
		}
	}
}

// BenchmarkSum hashes a prompt of 330 KB block by block, as a walk does.
func BenchmarkSum(b *testing.B) {
	text, h := make([]byte, 330_000), newHasher(seed)
	each := func(sum func([]byte) uint64) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for at, n := 0, 40; at+n <= len(text); n = 40 + (n+13)%32 {
					sum(text[at : at+n])
					at += n
				}
			}
		}
	}
	b.Run("ours", each(h.sum))
	b.Run("xxh3", each(func(b []byte) uint64 { return xxh3.HashSeed(b, seed) }))
}
