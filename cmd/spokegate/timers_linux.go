package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the kernel may wake this process for a timer, so that it need not wake it for each.
const timerSlack = 2 * time.Millisecond

// The main goroutine, which does little but wait, stays on the first thread.
func init() { runtime.LockOSThread() }

// coarseTimers makes all threads of this process have timerSlack, for roles that mostly wait for the network: Go's runtime
// watches its threads by a timer of 20 µs while any of them is in a system call, and each is a switch of threads. At a few
// hundred requests a second that was a fifth of a door's CPU. Nothing here is timed more finely than the 5 ms of a journal.
//
// The runtime's own thread is running by now, and a thread has its value from the one that made it, so the process is
// executed once more, by its first thread: only that one keeps the kernel's word that the process is to end with who started
// it. What it starts inherits the value. Where any of that fails the process goes on as it is.
func coarseTimers() {
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now >= int(timerSlack) || unix.Gettid() != os.Getpid() {
		return
	}
	self, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(self, os.Args, os.Environ())
}
