package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spokegate/spokegate/envoy"
)

// envoyRunFlags are those of the door whose Envoy it is, and how Envoy is started and ended.
type envoyRunFlags struct {
	door         doorFlags
	binary       string
	delay, drain time.Duration

	// Fixed, but in tests: how long Envoy may take to end, how long nothing must run before it is taken to be empty, and how
	// long idle connections may take to be left.
	grace, settle, idle time.Duration
}

func (e *envoyRunFlags) register(f *flag.FlagSet) {
	e.door.register(f)
	f.StringVar(&e.binary, "envoy", "envoy", "Envoy's `binary`, by its path or on PATH")
	envoyThreadsFlag(f, &e.door.envoy)
	f.DurationVar(&e.delay, "drain-delay", 5*time.Second, "how long after SIGTERM balancers may go on sending clients here, while health already says no")
	f.DurationVar(&e.drain, "drain", 5*time.Minute, "how long after that running requests may go on")
	e.grace, e.settle, e.idle = stopGrace, time.Second, 10*time.Second
}

func envoyThreadsFlag(f *flag.FlagSet, d *envoy.Door) {
	f.IntVar(&d.Concurrency, "envoy-threads", 0, "`number` of Envoy's worker threads; 0: one a core")
}

func (e *envoyRunFlags) complete() error {
	if e.delay < 0 || e.drain < 0 {
		return errors.New("-drain-delay and -drain: want no negative time")
	}
	if e.door.envoy.Admin == "" {
		return errors.New("-admin is needed: Envoy is drained by its admin page")
	}
	if err := e.door.complete(); err != nil {
		return err
	}
	e.door.envoy.DrainFile = filepath.Join(e.door.dir, "run", "envoy.drain")
	e.door.envoy.MaxHeap = heapWithin(ownMemoryLimit())
	return nil
}

// endedByItself is for an Envoy that nobody had asked to end: its status becomes ours, as a shell tells it: of a signal 128 and its
// number.
func endedByItself(how error) error {
	var exit *exec.ExitError
	if !errors.As(how, &exit) {
		return exitStatus{0, errors.New("the Envoy has ended by itself")}
	}
	status := exit.ExitCode()
	if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		status = 128 + int(st.Signal())
	}
	return exitStatus{status, fmt.Errorf("the Envoy has ended by itself: %w", how)}
}

// runEnvoyProcess runs the Envoy of a door, and ends it without breaking off a request.
func runEnvoyProcess(ctx context.Context, args []string) error {
	var e envoyRunFlags
	f := flag.NewFlagSet("envoy run", flag.ContinueOnError)
	e.register(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := e.complete(); err != nil {
		return err
	}
	lock, err := holdRun(e.door.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	bootstrap := filepath.Join(e.door.dir, "run", "envoy.json")
	if err := writeBootstrap(bootstrap, e.door.envoy); err != nil {
		return err
	}
	if err := writeDrainFile(e.door.envoy.DrainFile, "0"); err != nil {
		return err
	}
	// Before Envoy starts, so that no signal is missed: ctx tells of the first only.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	hurry, now := context.WithCancel(context.WithoutCancel(ctx))
	defer now()
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-hurry.Done():
				return
			}
		}
		now()
	}()
	return e.run(ctx, hurry, envoy.Command(e.binary, e.door.envoy, bootstrap), newLog(os.Stderr, e.door.logLevel, "envoy", e.door.name))
}

// writeBootstrap writes what an Envoy starts with; a reader finds it whole.
func writeBootstrap(path string, d envoy.Door) error {
	text, err := protojson.Marshal(d.Bootstrap())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// run starts Envoy, and ends it when ctx is done: drained, or at once when hurry is done too. The kernel tells a child of its
// parent's death by the thread that made it, so that thread stays for as long as Envoy lives.
func (e *envoyRunFlags) run(ctx, hurry context.Context, argv []string, log *slog.Logger) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// A group of its own keeps the terminal's Ctrl-C away: Envoy would end at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("-envoy: %w", err)
	}
	log.Info("Envoy runs", "pid", cmd.Process.Pid, "listen", e.door.envoy.Listen)
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }()
	select {
	case err := <-died:
		return endedByItself(err)
	case <-ctx.Done():
	}
	waiting, enough := context.WithCancel(hurry)
	defer enough()
	empty := make(chan struct{})
	go func() {
		defer close(empty)
		e.empty(waiting, newEnvoyAdmin(e.door.envoy.Admin, adminPatience), log)
	}()
	select {
	case err := <-died:
		enough()
		<-empty
		return endedByItself(err)
	case <-empty:
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-died:
		if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signal() == syscall.SIGTERM {
			return nil // it had not come so far that it takes the signal by itself
		}
		return err
	case <-time.After(e.grace):
		log.Error("Envoy does not end by itself: killing it")
		_ = cmd.Process.Kill()
		return <-died
	}
}
