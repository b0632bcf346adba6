package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage says to a copy of the test's binary what it is: the first process of the namespaces, the tests themselves, what holds a
// pod, or a container on its way to become what it runs.
const stage = "SPOKEGATE_RIG_STAGE"

// Main runs a package's tests in network, mount and process namespaces of their own, and gives the exit status: call it from
// TestMain. So every port is free, pods can have addresses, and when the tests end, in whatever way, nothing of them is left.
// It needs root. The inner process has lo and nothing else: no test there reaches the outside.
func Main(run func() int) int {
	switch os.Getenv(stage) {
	case "":
		return report(enter())
	case "first":
		return report(first())
	case "pause":
		return report(1, pause())
	case "container":
		return report(1, becomeContainer())
	}
	_ = os.Unsetenv(stage)
	return run()
}

func report(code int, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
	}
	return code
}

// enter starts this binary again, as the first process of new namespaces, and waits for it.
func enter() (int, error) {
	if os.Getuid() != 0 {
		return 1, errors.New("these tests make namespaces for pods, which needs root")
	}
	runtime.LockOSThread() // the child dies with the thread that made it
	cmd := again("first")
	cmd.Args = append(cmd.Args, os.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	return status(cmd.Run())
}

// first sets the namespaces up, runs the tests as its child, and buries what is orphaned, as the first process of a system does.
func first() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 1, fmt.Errorf("mounts of our own: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 1, fmt.Errorf("/proc: %w", err)
	}
	if err := ip("link", "set", "lo", "up"); err != nil {
		return 1, err
	}
	cmd := again("tests")
	cmd.Args = append(cmd.Args, os.Args[1:]...)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, err
		case pid == cmd.Process.Pid:
			if ws.Signaled() {
				return 1, fmt.Errorf("the tests ended by %v", ws.Signal())
			}
			return ws.ExitStatus(), nil
		}
	}
}

// again is this binary in another stage.
func again(as string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stage+"="+as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func status(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code > 0 {
			return code, nil
		}
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// ip runs iproute2.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
