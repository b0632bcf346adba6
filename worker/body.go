package worker

import (
	"errors"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/spokegate/spokegate/openai"
)

// Rooms for bodies come in powers of two between these, and are used again. A smaller one is not worth it, a larger one is
// too rare to be kept.
const (
	leastRoom = 14 // 16 KiB
	mostRoom  = 22 // 4 MiB
)

var rooms [mostRoom + 1]sync.Pool // of *[]byte with that capacity

// room is n bytes with anything in them.
func room(n int) *[]byte {
	class := bits.Len(uint(max(n, 1) - 1))
	if class < leastRoom || class > mostRoom {
		b := make([]byte, n)
		return &b
	}
	if b, ok := rooms[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

func giveRoom(b *[]byte) {
	if class := bits.Len(uint(cap(*b))) - 1; class >= leastRoom && class <= mostRoom && cap(*b) == 1<<class {
		rooms[class].Put(b)
	}
}

// edit puts other bytes in the place of some of a body.
type edit struct {
	at   openai.Span
	with []byte
}

// body is a request's body as the engine gets it: the client's bytes, never copied, and what is put between them. Its room
// is used again when nobody can read it any more, which the transport may do also after it has answered.
type body struct {
	pieces [][]byte
	size   int64

	mu    sync.Mutex
	room  *[]byte
	users int // the attempt, readers that are open, reads that run
}

// newBody takes the room over. The edits must not overlap.
func newBody(room *[]byte, edits ...edit) *body {
	slices.SortFunc(edits, func(a, b edit) int { return a.at.Start - b.at.Start })
	b := &body{room: room, users: 1, pieces: make([][]byte, 0, 2*len(edits)+1)}
	at := 0
	for _, e := range edits {
		b.add((*room)[at:e.at.Start])
		b.add(e.with)
		at = e.at.End
	}
	b.add((*room)[at:])
	return b
}

func (b *body) add(piece []byte) {
	if len(piece) > 0 {
		b.pieces = append(b.pieces, piece)
		b.size += int64(len(piece))
	}
}

// open is a reader from the beginning.
func (b *body) open() *bodyReader {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	return &bodyReader{body: b, rest: b.pieces}
}

// done ends one use.
func (b *body) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		giveRoom(b.room)
		b.room, b.pieces = nil, nil
	}
}

var errBodyClosed = errors.New("the body is closed")

// bodyReader reads a body once. Close may come while a read runs.
type bodyReader struct {
	body   *body
	rest   [][]byte // from the one that is being read on
	at     int      // how much of its first was read
	closed bool     // guarded by body.mu
}

// use begins a read, which body.done ends.
func (r *bodyReader) use() bool {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if !r.closed {
		r.body.users++
	}
	return !r.closed
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	if !r.use() {
		return 0, errBodyClosed
	}
	defer r.body.done()
	for n < len(p) && len(r.rest) > 0 {
		c := copy(p[n:], r.rest[0][r.at:])
		n += c
		r.skip(c)
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes what is left, each piece at once.
func (r *bodyReader) WriteTo(w io.Writer) (n int64, err error) {
	if !r.use() {
		return 0, errBodyClosed
	}
	defer r.body.done()
	for len(r.rest) > 0 {
		c, err := w.Write(r.rest[0][r.at:])
		n += int64(c)
		r.skip(c)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// left is how much is still to be read, in bytes.
func (r *bodyReader) left() (n int64) {
	for _, piece := range r.rest {
		n += int64(len(piece))
	}
	return n - int64(r.at)
}

func (r *bodyReader) skip(n int) {
	if r.at += n; r.at == len(r.rest[0]) {
		r.rest, r.at = r.rest[1:], 0
	}
}

func (r *bodyReader) Close() error {
	r.body.mu.Lock()
	was := r.closed
	r.closed = true
	r.body.mu.Unlock()
	if !was {
		r.body.done()
	}
	return nil
}
