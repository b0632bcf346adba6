package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// upOptions say how `spokegate up` is started.
type upOptions struct {
	policy  *policyText
	picker  string
	attach  string
	engine  *engine // to attach to
	rates   string
	workers int
	more    []string          // further flags
	after   func(u *up) error // run once it is ready
	// losing: usage records may be missing, because a test kills the door.
	losing bool
}

// up is one running `spokegate up`.
type up struct {
	name                    string
	dir                     string
	listen, admin, ops, hub string
	policy                  *policyText
	policyPath              string
	losing                  bool

	cmd    *exec.Cmd
	out    output
	exited chan struct{}
	ended  bool  // it was asked to
	err    error // of the process; read it after exited
	ledger *ledger
	closer []func() // what the tests run beside it, in order
	engine *engine
	tap    *tap
	idp    *idp
	// foreign: the Envoy is a gateway's, whose own refusals are not in our words.
	foreign bool
}

// openSentence is what `up` prints when it is ready.
const openSentence = "The door is open"

const (
	startPatience = 3 * time.Minute
	stopPatience  = 2 * time.Minute
)

// newUp makes the folder and the command line; nothing runs yet.
func newUp(name string, o upOptions) (*up, error) {
	dir, err := os.MkdirTemp("/tmp", "sg")
	if err != nil {
		return nil, err
	}
	if o.engine != nil {
		o.attach = o.engine.server.URL
	}
	u := &up{name: name, dir: dir, listen: freeAddr(), admin: freeAddr(), ops: freeAddr(), hub: freeAddr(),
		policy: o.policy, policyPath: filepath.Join(dir, "p.yaml"), losing: o.losing, engine: o.engine, exited: make(chan struct{})}
	if err := os.WriteFile(u.policyPath, []byte(o.policy.yaml()), 0o600); err != nil {
		return nil, err
	}
	u.cmd = command(u.args(o)...)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.out
	return u, nil
}

func (u *up) args(o upOptions) []string {
	args := []string{"up", "-dir", u.dir, "-listen", u.listen, "-admin", u.admin, "-ops", u.ops,
		"-hub-listen", u.hub, "-policy", u.policyPath, "-envoy", lab.envoy}
	for flag, value := range map[string]string{"-picker": o.picker, "-attach": o.attach, "-rates": o.rates} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	if o.workers > 0 {
		args = append(args, "-workers", fmt.Sprint(o.workers))
	}
	return append(args, o.more...)
}

// command is the binary with these arguments, in a group of its own, and without what the caller's environment says.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(lab.binary, args...)
	cmd.Dir = lab.temp
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SPOKEGATE_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// begin starts the process. The thread that starts it stays, because its end would be the child's.
func (u *up) begin() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := u.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		u.err = u.cmd.Wait()
		close(u.exited)
	}()
	return <-started
}

// startUp starts an installation and waits until it serves.
func startUp(name string, o upOptions) (*up, error) {
	u, err := newUp(name, o)
	if err != nil {
		return nil, err
	}
	if err := u.begin(); err != nil {
		return nil, err
	}
	if err := u.awaitReady(); err != nil {
		_ = u.kill()
		return nil, fmt.Errorf("%s: %w\n%s", name, err, u.report())
	}
	u.ledger = newLedger(filepath.Join(u.dir, "spool"))
	if o.after != nil {
		if err := o.after(u); err != nil {
			return nil, errors.Join(err, u.stop())
		}
	}
	return u, nil
}

// ownUp starts an installation for one test, and stops it with the test.
func ownUp(t testing.TB, name string, o upOptions) *up {
	t.Helper()
	lab.needEnvoy(t)
	u, err := startUp(name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// awaitReady waits for the two facts that say so: the printed sentence and the ops page.
func (u *up) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	for !strings.Contains(u.out.String(), openSentence) {
		select {
		case <-u.exited:
			return fmt.Errorf("`spokegate up` ended: %v", u.err)
		case <-ctx.Done():
			return errors.New("the door did not open in time")
		case <-time.After(20 * time.Millisecond):
		}
	}
	resp, err := http.Get("http://" + u.ops + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %d after %q", resp.StatusCode, openSentence)
	}
	return nil
}

// stop ends it as a user would, and returns everything that should not be so.
func (u *up) stop() error {
	for _, c := range slices.Backward(u.closer) {
		c()
	}
	family := descendants(u.cmd.Process.Pid)
	errs := []error{u.end()}
	errs = append(errs, u.leftBehind(family, factPatience), u.scanLogs(), u.scanSecrets(), u.ledger.close(!u.losing))
	err := errors.Join(errs...)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", u.name, err, u.report())
	}
	return errors.Join(err, u.kill())
}

// end asks it to stop, and leaves its folder as it is. It is safe to call more than once.
func (u *up) end() error {
	if u.ended {
		return nil
	}
	u.ended = true
	if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("it ran no more: %w", err)
	}
	select {
	case <-u.exited:
		if u.err != nil {
			return fmt.Errorf("SIGTERM: want exit code 0, got %w", u.err)
		}
	case <-time.After(stopPatience):
		return errors.New("it does not end on SIGTERM")
	}
	return nil
}

// kill takes away whatever is there, without judging.
func (u *up) kill() error {
	family := descendants(u.cmd.Process.Pid)
	_ = u.cmd.Process.Kill()
	<-u.exited
	for _, p := range append(family, processesOf(u.dir)...) {
		p.kill()
	}
	return os.RemoveAll(u.dir)
}

// leftBehind names the processes that still run of this family, or with our folder in their command line.
func (u *up) leftBehind(family []process, patience time.Duration) error {
	var left []process
	deadline := time.Now().Add(patience)
	for {
		left = slices.DeleteFunc(append(slices.Clone(family), processesOf(u.dir)...), func(p process) bool { return !p.alive() })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("left behind: %v", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// scanLogs looks for what no test would notice otherwise.
func (u *up) scanLogs() error {
	var errs []error
	logs, _ := filepath.Glob(filepath.Join(u.dir, "log", "*.log"))
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic:", "fatal error:", "Assert failure", "Caught "} {
			if i := bytes.Index(data, []byte(bad)); i >= 0 {
				errs = append(errs, fmt.Errorf("%s says:\n%s", filepath.Base(path), data[i:min(len(data), i+4000)]))
			}
		}
	}
	return errors.Join(errs...)
}

// report is what people need to see of a failure.
func (u *up) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- output of %s\n%s", u.name, u.out.String())
	logs, _ := filepath.Glob(filepath.Join(u.dir, "log", "*.log"))
	for _, path := range logs {
		data, _ := os.ReadFile(path)
		fmt.Fprintf(&b, "--- end of %s\n%s\n", filepath.Base(path), data[max(0, len(data)-1500):])
	}
	return b.String()
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
