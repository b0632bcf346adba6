package usage

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// child appends for ever and says on its output, one line each, up to which record all is acknowledged.
func child(dir string) {
	every, _ := time.ParseDuration(os.Getenv("USAGE_TEST_CHECKPOINT")) // 0: no checkpoints
	s, err := Open(dir, "door/main", Options{SegmentBytes: 50_000, Checkpoint: every})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		s.Append(&usagev1.Record{Id: fmt.Sprintf("%d-%d/usage", os.Getpid(), i), Kind: KindUsage})
		if i%50 == 0 {
			if err := s.Flush(context.Background()); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(i)
		}
	}
}

// Killed with -9 at any moment, all that was acknowledged is there, without a gap, and the next start opens a new epoch.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[int]int{} // pid → last record
	for round := range 6 {
		pid, last := killedChild(t, dir, 3+round*5)
		acknowledged[pid] = last
		tearTail(t, dir)
	}
	found := map[string]bool{}
	epochs := map[uint64]uint64{}
	sum, err := Read(dir, func(r *usagev1.Record) error {
		found[r.Id] = true
		if epochs[r.Epoch]++; epochs[r.Epoch] != r.Sequence {
			t.Fatalf("epoch %d: %d comes after %d", r.Epoch, r.Sequence, epochs[r.Epoch]-1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pid, last := range acknowledged {
		for i := range last + 1 {
			if id := fmt.Sprintf("%d-%d/usage", pid, i); !found[id] {
				t.Fatalf("%s was acknowledged and is gone", id)
			}
		}
	}
	if len(sum.Epochs) != 6 || sum.Torn != 6 {
		t.Errorf("%d epochs, %d torn tails, want 6 and 6", len(sum.Epochs), sum.Torn)
	}
}

// killedChild runs a child until it has acknowledged so many times, and kills it.
func killedChild(t *testing.T, dir string, lines int) (pid, last int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "USAGE_TEST_CHILD="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		if n == lines {
			_ = cmd.Process.Kill() // and read on: what it said before it died counts
		}
		if last, err = strconv.Atoi(strings.TrimSpace(scanner.Text())); err != nil {
			t.Fatalf("the child says: %s", scanner.Text())
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended with %v", err)
	}
	return cmd.Process.Pid, last
}

// tearTail leaves an unfinished line at the end of the newest segment, as a kill in the middle of a write does.
func tearTail(t *testing.T, dir string) {
	t.Helper()
	list, err := segments(dir + "/door_main")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(list[len(list)-1].path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123abcd {\"id\":\"torn"); err != nil {
		t.Fatal(err)
	}
}
