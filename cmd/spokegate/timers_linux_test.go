package main

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCoarseTimers: every thread of the process has them, those that the runtime made before main included.
func TestCoarseTimers(t *testing.T) {
	const asChild = "SPOKEGATE_TEST_TIMERS"
	if os.Getenv(asChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCoarseTimers$", "-test.v")
		cmd.Env = append(os.Environ(), asChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	coarseTimers()
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
