package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"syscall"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

const (
	// watchHealth is how often one that serves is asked, and deafMost how long it may give no good answer before it counts
	// as failed: a busy engine is slow to answer (one that cuts a long prompt into tokens answers nobody), a dead one never does.
	watchHealth = time.Second
	deafMost    = 30 * time.Second
	// hungGrace is all that an engine gets to end by itself which has answered nobody for long.
	hungGrace = 5 * time.Second
	// How soon a dead engine is started again: doubling, and from the start once it has lived for restartMost.
	restartFirst = 200 * time.Millisecond
	restartMost  = 30 * time.Second
)

// bounds are how long an engine gets, and how often.
type bounds struct {
	start   time.Duration // until it is healthy
	every   time.Duration // how often it is asked while it starts
	deaf    time.Duration // without a good answer, once it serves
	stop    time.Duration // between SIGTERM and SIGKILL; nothing is in flight then
	crashes int           // failures within window after which it is not started again; 0: it always is
	window  time.Duration
}

// process keeps one child process alive.
type process struct {
	command func() (*exec.Cmd, error)                  // a fresh one each time
	guarded bool                                       // the command is a Guard
	healthy func(context.Context) (Description, error) // asked until there is no error; the epoch is set by process
	log     *slog.Logger
	tell    func(Life)
	bounds
	reads dialect // of its log

	again chan string // why the child that runs is to be given up
}

// keep starts the child again and again until ctx ends, and returns when the last one is gone.
func (p *process) keep(ctx context.Context) {
	wait := restartFirst
	var failures []time.Time
	for {
		began := time.Now()
		why := p.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartMost {
			wait = restartFirst
		}
		failures = append(recent(failures, time.Now().Add(-p.window)), time.Now())
		if n := len(failures); p.crashes > 0 && n >= p.crashes {
			why.Reason = fmt.Sprintf("given up, for it failed %d times in %v; at last: %s", n, p.window, why.Reason)
			p.log.Error("engine failed for good", "reason", why.Reason)
			p.tell(why)
			<-ctx.Done()
			return
		}
		p.log.Error("engine failed", "reason", why.Reason, "cause", why.Cause, "restart_in", wait)
		p.tell(why)
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, restartMost)
	}
}

// recent leaves those of the times that are after since.
func recent(times []time.Time, since time.Time) []time.Time {
	return slices.DeleteFunc(times, func(t time.Time) bool { return !t.After(since) })
}

// restart gives the child up that runs now, for the watcher's reason.
func (p *process) restart(reason string) {
	select {
	case p.again <- reason:
	default: // it is being given up already
	}
}

// aRun is one child's life.
type aRun struct {
	*process
	*child
	life Life
	ears ears
}

// once runs one child from start to end and says why it ended. It is gone when once returns.
func (p *process) once(ctx context.Context) Life {
	select {
	case <-p.again: // meant for the one before
	default:
	}
	r := &aRun{process: p, ears: ears{reads: p.reads, changed: make(chan struct{}, 1)}}
	r.life = Life{State: workerv1.State_STATE_STARTING, Description: Description{Epoch: newEpoch()}}
	p.tell(r.life)
	killed := oomKills()
	cmd, err := p.command()
	if err == nil {
		r.child, err = startChild(cmd, p.guarded, &lines{log: p.log, heard: r.ears.hear})
	}
	if err != nil {
		return failed(causeStart, fmt.Sprintf("not started: %v", err))
	}
	why := r.live(ctx)
	grace := p.stop
	if why.Cause == causeHung || why.Cause == causeSilent {
		grace = min(grace, hungGrace) // what hangs does not end by itself
	}
	r.child.stop(grace)
	if why.Cause == causeStart || why.Cause == causeCrash {
		r.explain(&why, oomKills() > killed)
	}
	return why
}

func failed(cause, reason string) Life {
	return Life{State: workerv1.State_STATE_FAILED, Cause: cause, Reason: reason}
}

// live returns when the child has ended or is to be given up.
func (r *aRun) live(ctx context.Context) Life {
	described, why := r.ready(ctx)
	if why != nil {
		return *why
	}
	described.Epoch = r.life.Epoch
	r.life.State, r.life.Reason, r.life.Description = workerv1.State_STATE_READY, "", described
	r.log.Info("engine is up", "epoch", described.Epoch, "block_size", described.BlockSize, "blocks", described.Blocks)
	r.tell(r.life)
	return r.watch(ctx)
}

// ready waits until the child is healthy.
func (r *aRun) ready(ctx context.Context) (Description, *Life) {
	ctx, cancel := context.WithTimeout(ctx, r.start)
	defer cancel()
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	asked := make(chan error, 1)
	var d Description
	ask := func() {
		var err error
		d, err = r.ask(ctx)
		asked <- err
	}
	go ask()
	for {
		var why Life
		select {
		case err := <-asked:
			if err == nil {
				return d, nil
			}
			select {
			case <-tick.C:
			case <-r.done: // seen below
			case <-ctx.Done():
			}
			go ask()
			continue
		case <-r.ears.changed:
			r.listen()
			continue
		case <-r.done:
			why = failed(causeStart, "ended before it was ready: "+r.ending())
		case reason := <-r.again:
			why = failed(causeHung, reason)
		case <-ctx.Done():
			why = failed(causeStart, fmt.Sprintf("not ready after %v", r.start))
			if r.life.Reason != "" {
				why.Reason += ", at " + r.life.Reason
			}
		}
		cancel()
		<-asked
		return Description{}, &why
	}
}

// watch returns why a child that serves is to be given up.
func (r *aRun) watch(ctx context.Context) Life {
	tick := time.NewTicker(min(watchHealth, r.deaf))
	defer tick.Stop()
	well := time.Now()
	for {
		select {
		case <-r.done:
			return failed(causeCrash, "ended: "+r.ending())
		case <-ctx.Done():
			return Life{}
		case reason := <-r.again:
			return failed(causeHung, reason)
		case <-r.ears.changed:
			r.listen()
			continue
		case <-tick.C:
		}
		asked := time.Now()
		if _, err := r.ask(ctx); err == nil {
			well = time.Now()
		} else if asked.Sub(well) > r.deaf && ctx.Err() == nil {
			return failed(causeSilent, fmt.Sprintf("runs, and does not answer: %v", err))
		}
	}
}

// ask is one look at a child's health.
func (r *aRun) ask(ctx context.Context) (Description, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*watchHealth)
	defer cancel()
	return r.healthy(ctx)
}

// listen tells what the log said.
func (r *aRun) listen() {
	progress, degraded, _ := r.ears.now()
	next := r.life
	next.Degraded = degraded
	if next.State == workerv1.State_STATE_STARTING {
		next.Reason = progress
	}
	if next != r.life {
		r.life = next
		r.tell(next)
	}
}

// explain adds what the log and the kernel say of an end.
func (r *aRun) explain(why *Life, oom bool) {
	_, _, cause := r.ears.now()
	switch {
	case cause.what == causeMemory:
		why.Cause, why.Reason = causeMemory, "out of memory: "+cause.line
	case oom && r.signal() == syscall.SIGKILL:
		why.Cause, why.Reason = causeMemory, "out of memory: the kernel killed it"
	case cause.line != "" && cause.line != r.out.last():
		why.Reason += "; its log: " + cause.line
	}
}
