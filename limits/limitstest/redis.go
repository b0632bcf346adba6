package limitstest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Redis is a real redis-server of a test: in a folder of its own, on a Unix socket and a loopback port, keeping nothing on
// disk. It is stopped when the test ends.
type Redis struct {
	Socket string // path
	Addr   string // 127.0.0.1:PORT

	t    testing.TB
	cmd  *exec.Cmd
	more []string // arguments
}

// StartRedis starts one. A machine without redis-server fails the test: what is promised of Redis is shown on Redis.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	return startRedis(t, func() ([]string, error) { return nil, nil })
}

// startRedis starts one with more arguments, made anew for each try.
func startRedis(t testing.TB, more func() ([]string, error)) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not on PATH; run test/setup/redis.sh, or install Redis 7 or newer")
	}
	dir, err := os.MkdirTemp("", "redis") // short: a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	r := &Redis{Socket: filepath.Join(dir, "s"), t: t}
	t.Cleanup(func() {
		r.Kill()
		os.RemoveAll(dir)
	})
	for range 10 { // the free port may be taken meanwhile
		if r.Addr, err = freeAddr(); err != nil {
			t.Fatal(err)
		}
		if r.more, err = more(); err != nil {
			t.Fatal(err)
		}
		if err = r.start(); err == nil {
			return r
		}
	}
	t.Fatalf("redis-server does not start: %v", err)
	return nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// URL is where it is, for a configuration.
func (r *Redis) URL() string { return "unix://" + r.Socket }

// start returns when it takes connections.
func (r *Redis) start() error {
	_, port, _ := net.SplitHostPort(r.Addr)
	r.cmd = exec.Command("redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--unixsocket", r.Socket,
		"--save", "", "--appendonly", "no", "--dir", filepath.Dir(r.Socket), "--daemonize", "no"}, r.more...)...)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	r.cmd.Stdout = in
	err = r.cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return err
	}
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "ready to accept connections at") { // the socket, after the port
			go func() { // ends with the process
				_, _ = io.Copy(io.Discard, out)
				out.Close()
			}()
			return nil
		}
	}
	out.Close()
	_ = r.cmd.Wait()
	return errors.New(said.String())
}

// Kill ends it at once, as kill -9 does. What it knew is gone.
func (r *Redis) Kill() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// Restart starts it again, empty, at the same addresses.
func (r *Redis) Restart() {
	r.t.Helper()
	r.Kill()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = r.start(); err == nil {
			return
		}
		// Somebody's outgoing connection may have taken the port for a while.
	}
	r.t.Fatalf("redis-server does not start again: %v", err)
}

// Freeze stops it as kill -STOP does: connections stay, nothing is answered, what is sent waits. Thaw lets it go on.
func (r *Redis) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw ends a Freeze.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatalf("signal %s: %v", s, err)
	}
}

// Slow is a proxy before a Redis that delays what comes back.
type Slow struct {
	Socket string

	mu    sync.Mutex
	delay time.Duration
}

// SlowRedis starts a proxy, without delay at first.
func SlowRedis(t testing.TB, r *Redis) *Slow {
	t.Helper()
	s := &Slow{Socket: r.Socket + "-slow"}
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.relay(ctx, client, r.Socket) })
		}
	})
	return s
}

// URL is where the proxy is.
func (s *Slow) URL() string { return "unix://" + s.Socket }

// Delay makes everything that comes back from now on come later.
func (s *Slow) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

func (s *Slow) relay(ctx context.Context, client net.Conn, socket string) {
	defer client.Close()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close(); client.Close() })()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			break
		}
		s.mu.Lock()
		d := s.delay
		s.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		if _, err := client.Write(buf[:n]); err != nil {
			break
		}
	}
	client.Close()
	<-done
}
