package epp

import (
	"io"
	"net"
	"sync"
)

// relay stands before a picker, so that a test can take away a picker that it does not own.
type relay struct {
	addr, to string

	mu    sync.Mutex
	lis   net.Listener
	shut  bool
	conns map[net.Conn]bool
}

func newRelay(to string) (*relay, error) {
	r := &relay{addr: "127.0.0.1:0", to: to, conns: map[net.Conn]bool{}}
	return r, r.open()
}

// open begins, or begins again at the same address.
func (r *relay) open() error {
	lis, err := net.Listen("tcp", r.addr)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.lis, r.addr, r.shut = lis, lis.Addr().String(), false
	r.mu.Unlock()
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go r.pass(c)
		}
	}()
	return nil
}

func (r *relay) pass(from net.Conn) {
	to, err := net.Dial("tcp", r.to)
	if err != nil {
		from.Close()
		return
	}
	r.mu.Lock()
	r.conns[from], r.conns[to] = true, true
	if r.shut {
		from.Close()
	}
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
	}()
	_, _ = io.Copy(from, to)
	from.Close()
	r.mu.Lock()
	delete(r.conns, from)
	delete(r.conns, to)
	r.mu.Unlock()
}

// cut closes what there is, and refuses what comes.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lis.Close()
	r.shut = true
	for c := range r.conns {
		c.Close()
	}
}
