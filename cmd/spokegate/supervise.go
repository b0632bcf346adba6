package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// child is a process that is started again when it dies.
type child struct {
	name string
	argv []string
	log  string // file that its output goes to
	say  func(format string, args ...any)

	begin int64 // where in log the output of the process that runs, or ran last, begins
}

const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	settled      = 10 * time.Second // a child that ran for so long starts again at once
	stopGrace    = 10 * time.Second
)

// run keeps the child alive until ctx is done, and then ends it: SIGTERM, and SIGKILL after stopGrace.
func (c *child) run(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > settled {
			backoff = firstBackoff
		}
		if err == nil {
			c.say("%s ended; starting it again in %v", c.name, backoff)
		} else {
			c.say("%s died (%v)%s; starting it again in %v", c.name, err, c.lastWords(), backoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// once runs the child to its end. The kernel tells a child of its parent's death by the thread that made it, so that
// thread stays for as long as the child lives.
func (c *child) once(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if c.begin, err = out.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own keeps the terminal's Ctrl-C away: the order of the end is ours.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}

	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(stopGrace):
			c.say("%s does not end by itself: killing it", c.name)
			_ = cmd.Process.Kill()
		}
	}()
	err = cmd.Wait()
	close(ended)
	<-stopped
	return err
}

// lastWords are the last line that the child's last process wrote, for people.
func (c *child) lastWords() string {
	const tail = 2048
	f, err := os.Open(c.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := c.begin
	if st, err := f.Stat(); err == nil {
		from = max(from, st.Size()-tail)
	}
	_, _ = f.Seek(from, io.SeekStart)
	data, _ := io.ReadAll(f)
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	last := lines[len(lines)-1]
	if len(last) == 0 {
		return ""
	}
	return fmt.Sprintf(", its last words in %s: %s", filepath.Base(c.log), last)
}

// group runs children in stages and ends them in the reverse order, each stage wholly before the next.
type group struct {
	stages []*stage
}

type stage struct {
	children []*child
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// start begins a stage.
func (g *group) start(children ...*child) {
	ctx, cancel := context.WithCancel(context.Background())
	st := &stage{children: children, cancel: cancel}
	for _, c := range children {
		st.running.Go(func() { c.run(ctx) })
	}
	g.stages = append(g.stages, st)
}

func (g *group) stop() {
	for i := len(g.stages) - 1; i >= 0; i-- {
		g.stages[i].cancel()
		g.stages[i].running.Wait()
	}
}
