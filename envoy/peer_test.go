package envoy

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestPeerIsKnown: the kernel tells who is at the other end of a Unix socket, and nothing of TCP.
func TestPeerIsKnown(t *testing.T) {
	for network, address := range map[string]string{"unix": filepath.Join(t.TempDir(), "s"), "tcp": "127.0.0.1:0"} {
		lis, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		out, err := net.Dial(network, lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, info, _ := peerCredentials{}.ServerHandshake(in)
		p := info.(peerInfo).process
		if known := network == "unix"; known != (p.pid == int32(os.Getpid())) || known != p.alive() {
			t.Errorf("%s: %+v, alive %v", network, p, p.alive())
		}
		for _, c := range []interface{ Close() error }{out, in, lis} {
			_ = c.Close()
		}
	}
}

func TestProcessIsDeadWhenItIs(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ := look(int32(cmd.Process.Pid))
	if !p.alive() {
		t.Fatal("a running process counts as dead")
	}
	again := p
	again.start += "1" // the pid was given to another
	if again.alive() {
		t.Error("another process under the same pid counts as it")
	}
	_ = cmd.Process.Kill()
	for p.alive() { // a zombie until it is waited for, and dead all the same
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Wait()
	if p.alive() || (process{}).alive() {
		t.Error("a dead process counts as running")
	}
}

func await(s *Server, ctx context.Context) error {
	_, err := s.AwaitDeath(ctx)
	return err
}

// TestBrokenStreamIsNoDeath: this process was stopped for a while, say; Envoy lives and comes back.
func TestBrokenStreamIsNoDeath(t *testing.T) {
	a := newAcks(func(map[string]uint64) {}, slog.New(slog.DiscardHandler), newMetrics(nil))
	s := &Server{acks: a}
	self, _ := look(int32(os.Getpid()))
	a.open(1, self)
	ctx, cancel := context.WithCancel(context.Background())
	dead := make(chan error, 1)
	var wait sync.WaitGroup
	wait.Go(func() { dead <- await(s, ctx) })
	a.close(1)
	a.open(2, self)
	a.close(2)
	a.open(3, self)
	select {
	case err := <-dead:
		t.Fatalf("a broken stream counts as death: %v", err)
	case <-time.After(4 * deathPoll):
	}
	cancel()
	if err := <-dead; err != context.Canceled {
		t.Errorf("got %v", err)
	}
	wait.Wait()

	unknown := newAcks(func(map[string]uint64) {}, slog.New(slog.DiscardHandler), newMetrics(nil))
	s = &Server{acks: unknown}
	unknown.open(1, process{})
	ended := time.Now()
	unknown.close(1)
	// Its other connections may be read later than its stream: what they carried is its own too.
	if died, err := s.AwaitDeath(context.Background()); err != nil || died.Sub(ended) < deathPause {
		t.Errorf("died %v after its stream ended, %v", died.Sub(ended), err)
	}
	wait.Wait()
}
