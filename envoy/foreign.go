package envoy

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Foreign is in Server's place where another program configures the Envoy beside the door: a gateway's. It tells that Envoy
// nothing, and learns by its connections alone that it has died.
type Foreign struct {
	door  Door
	lines *lines
}

// NewForeign prepares for an Envoy that was set up as Gateway prints it.
func NewForeign(d Door) *Foreign { return &Foreign{d.withDefaults(), newLines()} }

// ServerOptions are the door's, and watch who connects.
func (f *Foreign) ServerOptions() []grpc.ServerOption {
	return append(f.door.ServerOptions(), roomForLogs(), grpc.Creds(watchedCredentials{lines: f.lines}))
}

// Register does nothing: there is no ADS.
func (f *Foreign) Register(*grpc.Server) {}

// SetEndpoints does nothing: the gateway's routes know them.
func (f *Foreign) SetEndpoints([]string) {}

// Run waits for ctx.
func (f *Foreign) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Connected is always true: such an Envoy connects with its first request.
func (f *Foreign) Connected() bool { return true }

// AwaitDeath is as Server's, by connections: an Envoy has one to the door before its first admission.
func (f *Foreign) AwaitDeath(ctx context.Context) (time.Time, error) {
	return awaitDeath(ctx, f.lines.gone, f.lines)
}

// lines are the connections to a socket, by whose they are.
type lines struct {
	mu   sync.Mutex // guards all below
	open map[process]*line
	left map[process]bool // whose last connection was closed, and who may have died
	gone chan struct{}    // gets one when that happens, unless the one before was not taken yet
}

type line struct {
	connections int
	since       time.Time
}

func newLines() *lines {
	return &lines{open: map[process]*line{}, left: map[process]bool{}, gone: make(chan struct{}, 1)}
}

func (l *lines) came(p process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.left, p)
	if l.open[p] == nil {
		l.open[p] = &line{since: time.Now()}
	}
	l.open[p].connections++
}

func (l *lines) went(p process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[p].connections--; l.open[p].connections > 0 {
		return
	}
	delete(l.open, p)
	l.left[p] = true
	select {
	case l.gone <- struct{}{}:
	default:
	}
}

// death implements callers. A process that is not known, because the kernel does not tell it here, counts as dead with its last
// connection.
func (l *lines) death() (dead, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.left, func(p process, _ bool) bool {
		over := !p.alive()
		dead = dead || over
		return over
	})
	return dead, len(l.left) > 0
}

func (l *lines) succession(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := []time.Time{now}
	for _, o := range l.open {
		since = append(since, o.since)
	}
	return slices.MinFunc(since, time.Time.Compare)
}

// watchedCredentials notes each connection and its end.
type watchedCredentials struct {
	peerCredentials
	lines *lines
}

func (w watchedCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.peerCredentials.ServerHandshake(c)
	if err != nil {
		return c, info, err
	}
	p := info.(peerInfo).process
	w.lines.came(p)
	return &watchedConn{Conn: c, closed: sync.OnceFunc(func() { w.lines.went(p) })}, info, nil
}

func (w watchedCredentials) Clone() credentials.TransportCredentials { return w }

// watchedConn tells when it is closed, which a server does when the other side has.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
