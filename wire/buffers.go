package wire

import (
	"math/bits"
	"sync"
)

// Buffers lends bytes for messages and bodies, and lends them again. gRPC's own pool clears each buffer whole, 1 MiB for a
// request of 330 KB; this one leaves in it what was there.
var Buffers Pool

// Pool is a mem.BufferPool of powers of two. The zero value is ready.
type Pool struct {
	classes [mostRoom + 1]sync.Pool // of *[]byte with a capacity of 1<<class
}

// What is smaller is not worth keeping, what is larger too rare.
const (
	leastRoom = 14 // 16 KiB
	mostRoom  = 22 // 4 MiB
)

// Get lends n bytes, in which anything may stand.
func (p *Pool) Get(n int) *[]byte {
	class := bits.Len(uint(max(n, 1) - 1))
	if class < leastRoom || class > mostRoom {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// Put takes bytes back that nobody uses any more, also such as Get did not lend.
func (p *Pool) Put(b *[]byte) {
	if class := bits.Len(uint(cap(*b))) - 1; class >= leastRoom && class <= mostRoom && cap(*b) == 1<<class {
		p.classes[class].Put(b)
	}
}
