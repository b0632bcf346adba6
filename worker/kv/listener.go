package kv

import (
	"context"
	"net"
)

// listener is where an engine connects to. A new connection ends the one before: the engine started again, and the old end is
// not closed yet.
type listener struct {
	at       endpoint
	accepted chan net.Conn
	listen   net.Listener
	done     chan struct{} // closed when no more will come
}

// next waits for the engine. Only one goroutine calls it.
func (l *listener) next(ctx context.Context) (net.Conn, error) {
	if l.listen == nil {
		listen, err := net.Listen(l.at.network, l.at.address)
		if err != nil {
			return nil, err
		}
		l.listen, l.accepted, l.done = listen, make(chan net.Conn), make(chan struct{})
		go l.accept()
	}
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.done:
		l.listen.Close() // or its address stays taken
		l.listen = nil
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// accept hands over each connection, and closes the one before, whether it was taken or not.
func (l *listener) accept() {
	defer close(l.done)
	var last net.Conn
	conns := make(chan net.Conn)
	go func() {
		defer close(conns)
		for {
			conn, err := l.listen.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	var offer chan net.Conn // nil while there is none to take
	for {
		select {
		case conn, ok := <-conns:
			if last != nil {
				last.Close()
			}
			if !ok {
				return
			}
			last, offer = conn, l.accepted
		case offer <- last:
			offer = nil
		}
	}
}

func (l *listener) close() {
	if l.listen != nil {
		l.listen.Close()
		<-l.done
	}
}
