package wire

import (
	"testing"

	"google.golang.org/grpc/mem"
)

var _ mem.BufferPool = &Buffers

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 10, 1<<14 - 1, 1 << 14, 1<<14 + 1, 330_000, 1 << 22, 1<<22 + 1} {
		for range 3 {
			b := Buffers.Get(n)
			if len(*b) != n {
				t.Fatalf("%d bytes lent for %d", len(*b), n)
			}
			Buffers.Put(b)
		}
	}
	foreign := make([]byte, 100_000)
	Buffers.Put(&foreign) // of no class: it is not kept
	if b := Buffers.Get(100_000); cap(*b) != 1<<17 {
		t.Errorf("lent a buffer of %d bytes", cap(*b))
	}
}
