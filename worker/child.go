package worker

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// maxLine of an engine's log; the rest of a longer line becomes a line of its own.
const maxLine = 8 << 10

// killMost is how long a guard may take to kill what its engine left behind, before it is killed itself.
const killMost = 5 * time.Second

// child is one running process, with all that it started: a process group of its own.
type child struct {
	cmd   *exec.Cmd
	out   *lines
	alive io.WriteCloser // a guard holds the other end: when this is closed, by whatever cause, it kills all; nil: no guard
	done  chan struct{}
	err   error // of Wait; read after done
}

// startChild starts cmd from a thread that stays: the kernel ends the child when the thread that started it dies, which
// must mean this process and nothing less. A guarded one is a Guard, which the kernel does not end: it does so by itself.
func startChild(cmd *exec.Cmd, guarded bool, out *lines) (*child, error) {
	c := &child{cmd: cmd, out: out, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.WaitDelay = killMost // a grandchild that keeps the pipe open does not keep us
	if guarded {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var err error
		if c.alive, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	} else {
		cmd.SysProcAttr = ownGroup()
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			c.out.flush()
			close(c.done)
		}
	}()
	return c, <-started
}

// stop ends the whole group: asked first, then killed. Only the process itself is asked: what it started is its own affair.
func (c *child) stop(grace time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	if !within(c.done, grace) && c.alive != nil {
		_ = c.alive.Close()
		within(c.done, killMost)
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // also what its end left behind
	<-c.done
}

// signal that ended the process, also behind a guard; 0: none.
func (c *child) signal() syscall.Signal {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
	case status.Signaled():
		return status.Signal()
	case c.alive != nil && status.ExitStatus() > guardSignal:
		return syscall.Signal(status.ExitStatus() - guardSignal)
	}
	return 0
}

// ending says how the process ended.
func (c *child) ending() string {
	how := c.cmd.ProcessState.String()
	if s := c.signal(); s != 0 {
		how = "signal: " + s.String()
	}
	if last := c.out.last(); last != "" {
		return fmt.Sprintf("%s (%.200s)", how, last)
	}
	return how
}

// lines passes an engine's output on, line by line.
type lines struct {
	log   *slog.Logger
	heard func(line string) // each one, from one goroutine; nil: nobody

	mu   sync.Mutex
	part []byte
	said string // the last line
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexAny(l.part, "\n\r") // progress bars return the carriage
		if i < 0 && len(l.part) < maxLine {
			return len(p), nil
		}
		if i < 0 || i > maxLine {
			l.say(l.part[:maxLine])
			l.part = append(l.part[:0], l.part[maxLine:]...)
			continue
		}
		l.say(l.part[:i])
		l.part = append(l.part[:0], l.part[i+1:]...)
	}
}

func (l *lines) say(line []byte) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	l.said = string(line)
	l.log.Info("engine", "line", l.said)
	if l.heard != nil {
		l.heard(l.said)
	}
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(l.part)
	l.part = nil
}

func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said
}

// words of a number of seconds, for people.
func words(d time.Duration) string {
	if d < time.Minute {
		return strconv.Itoa(int(d.Seconds())) + "s"
	}
	return d.Round(time.Second).String()
}
