package worker

import (
	"context"
	"io"
	"net"
)

// engineConn writes a body as it lies in memory. By itself net/http copies it through buffers of 32 KB, with a system call
// for each.
type engineConn struct{ net.Conn }

// ReadFrom is what net/http calls for all of a body that did not fit its buffer, behind a reader that bounds it.
func (c engineConn) ReadFrom(r io.Reader) (int64, error) {
	if bounded, ok := r.(*io.LimitedReader); ok {
		if b, ok := bounded.R.(*bodyReader); ok && b.left() <= bounded.N {
			n, err := b.WriteTo(c.Conn)
			bounded.N -= n
			return n, err
		}
	}
	return io.Copy(c.Conn, r)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// direct makes a dialer's connections write bodies as they are.
func (d dialer) direct(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return engineConn{conn}, nil
}
