package envoy

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// foreignCaller is where a child of this test calls.
const foreignCaller = "SPOKEGATE_TEST_FOREIGN_CALLER"

func TestForeignCaller(t *testing.T) {
	address := os.Getenv(foreignCaller)
	if address == "" {
		t.Skip("it is the other end of TestForeignDeath")
	}
	call(t, address)
	select {} // until it is killed
}

// call opens a connection to a gRPC server.
func call(t *testing.T, address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	conn.Connect()
	return conn
}

// TestForeignDeath: an Envoy that another program configures is known by its connections. Its death is that of its process,
// and takes along what was admitted before a successor came.
func TestForeignDeath(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	f := NewForeign(Door{})
	g := grpc.NewServer(f.ServerOptions()...)
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(lis) }()
	defer g.Stop()

	child := exec.Command(os.Args[0], "-test.run=^TestForeignCaller$")
	child.Env = append(os.Environ(), foreignCaller+"=unix:"+socket)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	f.awaitCaller(t, child.Process.Pid)

	own := call(t, "unix:"+socket) // a successor, and one who goes on after it has closed its connections
	f.awaitCaller(t, os.Getpid())
	came := time.Now()
	own.Close()
	none, cancel := context.WithTimeout(t.Context(), 4*deathPoll)
	defer cancel()
	if _, err := f.AwaitDeath(none); err != context.DeadlineExceeded {
		t.Errorf("nobody has died: %v", err)
	}
	own = call(t, "unix:"+socket)
	defer own.Close()
	f.awaitCaller(t, os.Getpid())
	_ = child.Process.Kill()
	died, err := f.AwaitDeath(t.Context())
	if err != nil || !died.After(came) || died.After(time.Now()) {
		t.Errorf("died at %v, %v; the successor came after %v", died, err, came)
	}
	if f.lines.open[process{}] != nil || len(f.lines.open) != 1 {
		t.Errorf("on the line: %v", f.lines.open)
	}
}

// awaitCaller waits until a process has a connection.
func (f *Foreign) awaitCaller(t *testing.T, pid int) {
	t.Helper()
	p, _ := look(int32(pid))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		f.lines.mu.Lock()
		there := f.lines.open[p] != nil
		f.lines.mu.Unlock()
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not call", pid)
		}
	}
}

// TestForeignUnknownProcess: where the kernel does not tell who called, the last connection counts.
func TestForeignUnknownProcess(t *testing.T) {
	l := newLines()
	l.came(process{})
	l.came(process{})
	l.went(process{})
	if dead, _ := l.death(); dead {
		t.Error("dead with a connection open")
	}
	l.went(process{})
	if dead, waiting := l.death(); !dead || waiting {
		t.Errorf("dead %v, waiting %v", dead, waiting)
	}
	if dead, _ := l.death(); dead {
		t.Error("it died twice")
	}
}
