package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// startMost is how long an engine may take until it is healthy.
	startMost = time.Minute
	// healthEvery is how often a starting engine is asked.
	healthEvery = 20 * time.Millisecond
	// watchHealth is how often one that serves is asked, and deafMost how long it may give no good answer before it counts
	// as failed: a busy engine is slow to answer, a dead one never does.
	watchHealth = time.Second
	deafMost    = 10 * time.Second
	// stopGrace is what an engine gets between SIGTERM and SIGKILL. Nothing is in flight then.
	stopGrace = 5 * time.Second
	// How soon a dead engine is started again: doubling, and from the start once it has lived for restartMost.
	restartFirst = 200 * time.Millisecond
	restartMost  = 30 * time.Second
	// maxLine of an engine's log; the rest of a longer line becomes a line of its own.
	maxLine = 8 << 10
)

// process keeps one child process alive.
type process struct {
	command func() *exec.Cmd                           // a fresh one each time
	healthy func(context.Context) (Description, error) // asked until there is no error; the epoch is set by process
	log     *slog.Logger
	tell    func(Life)
}

// keep starts the child again and again until ctx ends, and returns when the last one is gone.
func (p *process) keep(ctx context.Context) {
	wait := restartFirst
	for {
		began := time.Now()
		reason := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartMost {
			wait = restartFirst
		}
		p.log.Error("engine failed", "reason", reason, "restart_in", wait)
		p.tell(Life{State: workerv1.State_STATE_FAILED, Reason: reason})
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, restartMost)
	}
}

// once runs one child from start to end and says why it ended. It is gone when once returns.
func (p *process) once(ctx context.Context) (reason string) {
	epoch := newEpoch()
	p.tell(Life{State: workerv1.State_STATE_STARTING, Description: Description{Epoch: epoch}})
	c, err := startChild(p.command(), p.log)
	if err != nil {
		return fmt.Sprintf("not started: %v", err)
	}
	defer c.stop()
	described, err := p.ready(ctx, c)
	if err != nil {
		return err.Error()
	}
	described.Epoch = epoch
	p.log.Info("engine ready", "epoch", epoch)
	p.tell(Life{State: workerv1.State_STATE_READY, Description: described})
	return p.watch(ctx, c)
}

// watch returns why a child that serves is to be given up; "" when ctx ends.
func (p *process) watch(ctx context.Context, c *child) (reason string) {
	tick := time.NewTicker(watchHealth)
	defer tick.Stop()
	well := time.Now()
	for {
		select {
		case <-c.done:
			return "ended: " + c.ending()
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
		if err := p.ask(ctx); err == nil {
			well = time.Now()
		} else if time.Since(well) > deafMost && ctx.Err() == nil {
			return fmt.Sprintf("runs, and does not answer: %v", err)
		}
	}
}

// ask is one look at a child's health.
func (p *process) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*watchHealth)
	defer cancel()
	_, err := p.healthy(ctx)
	return err
}

// ready waits until the child is healthy.
func (p *process) ready(ctx context.Context, c *child) (Description, error) {
	ctx, cancel := context.WithTimeout(ctx, startMost)
	defer cancel()
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		d, err := p.healthy(ctx)
		if err == nil {
			return d, nil
		}
		select {
		case <-c.done:
			return Description{}, fmt.Errorf("ended before it was ready: %s", c.ending())
		case <-ctx.Done():
			return Description{}, fmt.Errorf("not ready after %v: %w", startMost, err)
		case <-tick.C:
		}
	}
}

// child is one running process, with all that it started: a process group of its own.
type child struct {
	cmd  *exec.Cmd
	out  *lines
	done chan struct{}
	err  error // of Wait; read after done
}

// startChild starts cmd from a thread that stays: the kernel ends the child when the thread that started it dies, which
// must mean this process and nothing less.
func startChild(cmd *exec.Cmd, log *slog.Logger) (*child, error) {
	c := &child{cmd: cmd, out: &lines{log: log}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = stopGrace // a grandchild that keeps the pipe open does not keep us
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

func (c *child) ending() string {
	if last := c.out.last(); last != "" {
		return fmt.Sprintf("%v (%.200s)", c.cmd.ProcessState, last)
	}
	return c.cmd.ProcessState.String()
}

// stop ends the whole group: asked first, then killed.
func (c *child) stop() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // also what its end left behind
	<-c.done
}

// lines passes an engine's output on, line by line.
type lines struct {
	log *slog.Logger

	mu   sync.Mutex
	part []byte
	said string // the last line
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 && len(l.part) < maxLine {
			return len(p), nil
		}
		if i < 0 || i > maxLine {
			i = maxLine
		}
		l.say(l.part[:i])
		l.part = append(l.part[:0], bytes.TrimPrefix(l.part[i:], []byte("\n"))...)
	}
}

func (l *lines) say(line []byte) {
	if line = bytes.TrimSpace(line); len(line) > 0 {
		l.said = string(line)
		l.log.Info("engine", "line", l.said)
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
