package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// guardSignal is added to the number of the signal that ended a guard's child, in the guard's own exit status.
const guardSignal = 128

// Guard runs argv as its child, passes SIGTERM on to it, and returns its exit status: 128 + N if signal N ended it. When the
// child has ended, or lifeline gives an end of file (for whoever held its other end has died, be it by kill -9), it kills all
// that the child had started, whatever groups or sessions that went to. Engines start processes that outlive them, hold the
// device, and that nobody would find again.
//
// It must be the main goroutine's work in a process of its own, which leads its process group.
func Guard(argv []string, lifeline io.Reader) (status int) {
	runtime.LockOSThread() // the kernel ends the child with the thread that started it
	adoptOrphans()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = diesWithParent()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	ended := make(chan struct{})
	go func() {
		lost := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, lifeline)
			close(lost)
		}()
		for {
			select {
			case <-asked:
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case <-lost:
				killDescendants()
				return
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	killDescendants()
	var exit *exec.ExitError
	switch ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case err != nil && !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, err)
		return 126
	case ok && ws.Signaled():
		return guardSignal + int(ws.Signal())
	default:
		return cmd.ProcessState.ExitCode()
	}
}
