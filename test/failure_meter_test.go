package test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// meterGate stands between Envoy and the door's socket. Admission and metering share the door's process, so what happens to
// the meter alone is made here: its connections hang, or are cut. The door takes the gate's process for Envoy's, so an
// Envoy behind it must not be killed.
type meterGate struct {
	lis  net.Listener
	real string

	mu    sync.Mutex
	held  chan struct{}         // not nil: bytes of the meter wait until it is closed
	conns map[net.Conn]struct{} // of the meter
}

// afterTheGate has an installation's Envoy start only when the gate stands, however late that is.
func afterTheGate(u *up) error {
	script := fmt.Sprintf("#!/bin/sh\nuntil [ -e %[1]s ]; do sleep 0.02; done\nexec %[2]s \"$@\"\n", filepath.Join(u.dir, "gate"), lab.envoy)
	replaceFlag(u.cmd, "-envoy", filepath.Join(u.dir, "envoy-after-the-gate"))
	return os.WriteFile(filepath.Join(u.dir, "envoy-after-the-gate"), []byte(script), 0o700)
}

// gateMeter takes the place of the door's socket.
func gateMeter(u *up) (*meterGate, error) {
	path := filepath.Join(u.dir, "run", "door.sock")
	g := &meterGate{real: filepath.Join(u.dir, "run", "real.sock"), conns: map[net.Conn]struct{}{}}
	deadline := time.Now().Add(startPatience)
	for { // until it is there and has its final mode
		if st, err := os.Stat(path); err == nil && st.Mode().Perm() == 0o600 {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the door makes no %s", path)
		}
		time.Sleep(time.Millisecond)
	}
	if err := os.Rename(path, g.real); err != nil {
		return nil, err
	}
	var err error
	if g.lis, err = net.Listen("unix", path); err != nil {
		return nil, err
	}
	g.lis.(*net.UnixListener).SetUnlinkOnClose(false) // the path may be another door's by then
	go g.accept()
	return g, os.WriteFile(filepath.Join(u.dir, "gate"), nil, 0o600)
}

func (g *meterGate) accept() {
	for {
		c, err := g.lis.Accept()
		if err != nil {
			return
		}
		go g.relay(c)
	}
}

// relay looks at the first request of a connection, and then passes bytes both ways.
func (g *meterGate) relay(c net.Conn) {
	defer c.Close()
	var head bytes.Buffer
	path := firstPath(io.TeeReader(c, &head))
	door, err := net.Dial("unix", g.real)
	if err != nil {
		return
	}
	defer door.Close()
	meter := strings.HasPrefix(path, "/envoy.service.ext_proc.")
	if meter {
		g.mu.Lock()
		g.conns[c] = struct{}{}
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			delete(g.conns, c)
			g.mu.Unlock()
		}()
	}
	go func() {
		defer c.Close()
		g.pass(c, door, meter)
	}()
	g.pass(door, io.MultiReader(&head, c), meter)
}

func (g *meterGate) pass(to io.Writer, from io.Reader, meter bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if meter {
			g.wait()
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (g *meterGate) wait() {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		<-held
	}
}

// firstPath reads up to the first request's headers.
func firstPath(r io.Reader) string {
	if _, err := io.ReadFull(r, make([]byte, len(http2.ClientPreface))); err != nil {
		return ""
	}
	f := http2.NewFramer(nil, r)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return ""
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			return h.PseudoValue("path")
		}
	}
}

// hold makes the meter hang until open.
func (g *meterGate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = make(chan struct{})
}

func (g *meterGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

// cut ends the meter's connections, and says how many there were.
func (g *meterGate) cut() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
	return len(g.conns)
}

// close lets everything pass, and takes no more connections.
func (g *meterGate) close() {
	g.open()
	g.lis.Close()
}

// breaks lets the meter hang for longer than Envoy's keepalive takes to give it up, and then cuts it off three times. No
// response minds; the flights end by the access log, and what was served is known from the shim.
func (g *meterGate) breaks(t *testing.T, s *siege) {
	g.hold()
	time.Sleep(4 * time.Second) // the fault's length
	g.open()
	cut := 0
	cuts := func() error {
		n := g.cut()
		if n == 0 {
			return fmt.Errorf("Envoy has no connection to the meter")
		}
		cut += n
		time.Sleep(200 * time.Millisecond) // for streams to begin on a new one
		return nil
	}
	for range 3 {
		eventually(t, factPatience, cuts)
	}
	eventually(t, journalPatience, func() error {
		if n := s.anomalies(t); n["unmetered"]+n["meter_cut"] == 0 {
			_ = cuts() // on a slow machine none of them had a stream
			return fmt.Errorf("%d connections were cut, and no record says so: %v", cut, n)
		}
		return nil
	})
}
