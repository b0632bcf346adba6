package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const asChild = "SPOKEGATE_TEST_TIMERS"

// parentDeath is the signal that the first thread gets when who started it ends.
var parentDeath int32

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" { // the first time, and once more after it has executed itself
		if n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); n < int(timerSlack) {
			_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGUSR2), 0, 0, 0)
		}
		coarseTimers()
		_ = unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&parentDeath)), 0, 0, 0)
	}
	os.Exit(m.Run())
}

// TestCoarseTimers: every thread of the process has them, those that the runtime made before main included, and the process
// still ends with who started it.
func TestCoarseTimers(t *testing.T) {
	if os.Getenv(asChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCoarseTimers$", "-test.v")
		cmd.Env = append(os.Environ(), asChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if parentDeath != int32(syscall.SIGUSR2) {
		t.Errorf("signal %d at the parent's death, want %d", parentDeath, syscall.SIGUSR2)
	}
	for range 10 {
		got := make(chan int)
		go func() {
			n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
			got <- n
		}()
		if n := <-got; n != int(timerSlack) {
			t.Fatalf("a thread's timers may be %d ns late, want %d", n, timerSlack)
		}
	}
}
