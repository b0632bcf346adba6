package worker

import (
	"context"
	"net"
	"net/http"

	"github.com/spokegate/spokegate/wire"
)

const (
	// serverWrites is how much net/http's server gathers for one write, in bytes. What does not fit it leaves in up to three.
	serverWrites = 4 << 10
	// gatherMost bounds what is copied to save writes, in bytes.
	gatherMost = 64 << 10
	// framing is more than the header of an answer is, and what stands around a chunk.
	framing = 2 << 10
)

// clients are connections of an HTTP server that can gather what it writes.
type clients struct{ net.Listener }

func (c clients) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		return &clientConn{TCPConn: tcp}, nil
	}
	return conn, err
}

// clientConn is one of them. Over HTTP/1 the goroutine of its present request is the only one that writes.
type clientConn struct {
	*net.TCPConn
	room   *[]byte // what was gathered; nil: writes are writes
	failed error   // why something of that did not leave: nothing must follow it
}

type clientConnKey struct{}

// withClient is a server's ConnContext.
func withClient(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientConnKey{}, c)
}

// clientOf is the connection of a request; nil: it cannot gather, or others have their part in it.
func clientOf(r *http.Request) *clientConn {
	if r.ProtoMajor != 1 {
		return nil
	}
	c, _ := r.Context().Value(clientConnKey{}).(*clientConn)
	return c
}

func (c *clientConn) Write(p []byte) (int, error) {
	switch {
	case c.failed != nil:
		return 0, c.failed
	case c.room == nil:
		return c.TCPConn.Write(p)
	}
	*c.room = append(*c.room, p...)
	return len(p), nil
}

// gather keeps what is written until release. n is how much there will be, without what net/http puts around it.
func (c *clientConn) gather(n int) {
	c.room = wire.Buffers.Get(n + framing)
	*c.room = (*c.room)[:0]
}

// release writes all that was gathered.
func (c *clientConn) release() error {
	room := c.room
	c.room = nil
	_, c.failed = c.Write(*room)
	wire.Buffers.Put(room)
	return c.failed
}
