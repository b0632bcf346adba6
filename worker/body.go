package worker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// edit puts other bytes in the place of some of a body.
type edit struct {
	at   openai.Span
	with []byte
}

// body is what a client sent. Its room is used again when nobody can read it any more, which a transport may do also after it
// has answered.
type body struct {
	mu    sync.Mutex
	room  *[]byte
	users int // the attempt, readers that are open, reads that run
}

// newBody takes the room over.
func newBody(room *[]byte) *body { return &body{room: room, users: 1} }

// bytes are the body itself. Like edited, only before it is done.
func (b *body) bytes() []byte { return *b.room }

// content is a body as somebody gets it: the client's bytes, and what is put between them. A large one is never copied.
type content struct {
	of     *body
	pieces [][]byte
	size   int64
	small  []byte // all of it in one piece; nil: it is large
}

// edited is the body for one reader or more. The edits must not overlap.
func (b *body) edited(edits ...edit) content {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at.Start - b.at.Start })
	c, sent, at := content{of: b, pieces: make([][]byte, 0, 2*len(edits)+1)}, b.bytes(), 0
	for _, e := range edits {
		c.add(sent[at:e.at.Start])
		c.add(e.with)
		at = e.at.End
	}
	c.add(sent[at:])
	if c.size <= engineWrites {
		c.small = bytes.Join(c.pieces, nil)
	}
	return c
}

func (c *content) add(piece []byte) {
	if len(piece) > 0 {
		c.pieces = append(c.pieces, piece)
		c.size += int64(len(piece))
	}
}

// open is a reader from the beginning. A small body goes into one that net/http knows never to wait: only such a one leaves with
// the header, in one write. Nobody tells when it was read last, so what it reads is a copy.
func (c content) open() io.ReadCloser {
	if c.small != nil {
		return io.NopCloser(bytes.NewReader(c.small))
	}
	return c.openLarge()
}

func (c content) openLarge() *bodyReader {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.users++
	return &bodyReader{body: c.of, rest: slices.Clone(c.pieces)}
}

// done ends one use.
func (b *body) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		wire.Buffers.Put(b.room)
		b.room = nil
	}
}

var errBodyClosed = errors.New("the body is closed")

// bodyReader reads a body once. Close may come while a read runs.
type bodyReader struct {
	body   *body
	rest   net.Buffers
	closed bool // guarded by body.mu
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

func (r *bodyReader) Read(p []byte) (int, error) {
	if !r.use() {
		return 0, errBodyClosed
	}
	defer r.body.done()
	return r.rest.Read(p)
}

// WriteTo writes what is left: to a socket, all of it at once.
func (r *bodyReader) WriteTo(w io.Writer) (int64, error) {
	if !r.use() {
		return 0, errBodyClosed
	}
	defer r.body.done()
	return r.rest.WriteTo(w)
}

// left is how much is still to be read, in bytes.
func (r *bodyReader) left() (n int64) {
	for _, piece := range r.rest {
		n += int64(len(piece))
	}
	return n
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
