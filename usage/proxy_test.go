package usage

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy passes TCP connections on, at a bounded rate towards the server.
type proxy struct {
	rate int // bytes a second
	sent atomic.Int64

	listener net.Listener
	wires    sync.WaitGroup
	mu       sync.Mutex
	targets  map[string]string // local address of a client → where it wants to go
}

func newProxy(t testing.TB, rate int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{rate: rate, listener: l, targets: map[string]string{}}
	p.wires.Go(p.accept)
	t.Cleanup(func() { l.Close(); p.wires.Wait() })
	return p
}

// dial connects through the proxy, to wherever the broker says it is.
func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock() // until the target is known
	defer p.mu.Unlock()
	var d net.Dialer
	c, err := d.DialContext(ctx, network, p.listener.Addr().String())
	if err == nil {
		p.targets[c.LocalAddr().String()] = address
	}
	return c, err
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.targets[client.RemoteAddr().String()]
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			client.Close()
			continue
		}
		server.(*net.TCPConn).SetWriteBuffer(16 << 10)
		client.(*net.TCPConn).SetReadBuffer(16 << 10) // or the kernel would take a whole request at once
		p.wires.Go(func() { p.slowly(server, client) })
		p.wires.Go(func() {
			_, _ = io.Copy(client, server)
			client.Close()
			server.Close()
		})
	}
}

// slowly copies at the rate.
func (p *proxy) slowly(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(n) * time.Second / time.Duration(p.rate)) // is the slow line
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		p.sent.Add(int64(n))
	}
}
