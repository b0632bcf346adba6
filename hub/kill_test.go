package hub

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runChild is the process that TestKilled kills.
func runChild(database string) int {
	h, err := Open(context.Background(), Config{Database: database})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("t%d", i%7)
		r, err := h.Commit(context.Background(), Commit{
			Actor: Actor{Name: fmt.Sprint(os.Getpid()), Role: RoleAdmin}, Message: fmt.Sprint(i),
			Changes: []Change{put(KindTeam, name, fmt.Sprintf(`{"models": ["m"], "limits": [{"concurrency": %d}]}`, i+1+os.Getpid()))},
		})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println(r.Number, r.Digest)
	}
}

// child is a process that commits as fast as it can, and prints each revision that it was answered.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, database string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SPOKEGATE_HUB_CHILD="+database)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, bufio.NewScanner(out)}
}

// read gives the next n revisions that the child was answered, as "NUMBER DIGEST", or all that are left.
func (c *child) read(n int) (list []string) {
	for len(list) < n && c.lines.Scan() {
		list = append(list, c.lines.Text())
	}
	return list
}

// TestKilled kills real processes with -9 while two of them commit to one database: what was answered is there as it was
// answered, numbers have no gaps and no number was answered twice.
func TestKilled(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		h := opened(t, Config{Database: database})
		must(t, h, put(KindSpoke, "a", "{}"), put(KindEndpoint, "e", `{"spoke": "a"}`), put(KindModel, "m", `{"endpoint": "e"}`))
		answered := map[string]string{} // digest by number
		for range 3 {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					c := startChild(t, database)
					list := c.read(12)
					_ = c.cmd.Process.Kill()
					list = append(list, c.read(1<<30)...) // what it had said before it died
					_ = c.cmd.Wait()
					mu.Lock()
					defer mu.Unlock()
					for _, line := range list {
						number, digest, whole := strings.Cut(line, " ")
						if strings.HasPrefix(line, "error") || answered[number] != "" {
							t.Errorf("a process says %q, and another had said %q", line, answered[number])
						}
						if whole && len(digest) == 64 {
							answered[number] = digest
						}
					}
				})
			}
			wg.Wait()
		}
		if len(answered) < 72 {
			t.Fatalf("only %d commits were answered", len(answered))
		}
		again := opened(t, Config{Database: database})
		head := again.Head().Number
		gapless(t, again, answered)
		eventually(t, func() bool { return h.Head().Number == head }) // who was there all the time has followed
		if h.Head().Digest != again.Head().Digest {
			t.Error("who followed has another state than who reads it now")
		}
	})
}

// gapless checks that a hub has every revision from 1 on, and those that were answered as they were.
func gapless(t *testing.T, h *Hub, answered map[string]string) {
	t.Helper()
	head := h.Head().Number
	var list []Revision
	for before := head + 1; before > 1; before = list[len(list)-1].Number {
		page, err := h.Revisions(context.Background(), admin, before, 50)
		if err != nil || len(page) == 0 {
			t.Fatal(page, err)
		}
		list = append(list, page...)
	}
	for i, r := range list {
		if r.Number != head-uint64(i) {
			t.Fatalf("revision %d follows %d", r.Number, head-uint64(i)+1)
		}
		if d := answered[fmt.Sprint(r.Number)]; d != "" && d != r.Digest {
			t.Errorf("revision %d was answered as %s and is %s", r.Number, d, r.Digest)
		}
		delete(answered, fmt.Sprint(r.Number))
	}
	if len(answered) > 0 {
		t.Errorf("were answered and are not there: %v", answered)
	}
}

// TestTogether: two hubs on one database commit at the same time, and each makes the same key once.
func TestTogether(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		hubs := []*Hub{opened(t, Config{Database: database}), opened(t, Config{Database: database})}
		must(t, hubs[0], put(KindSpoke, "a", "{}"), put(KindEndpoint, "e", `{"spoke": "a"}`), put(KindModel, "m", `{"endpoint": "e"}`), put(KindTeam, "t", `{"models": ["m"]}`))
		const each = 20
		var mu sync.Mutex
		secrets, numbers := 0, map[uint64]int{}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range each {
					m, err := hubs[i%2].CreateKey(context.Background(), Commit{Actor: admin, IdempotencyKey: fmt.Sprint(n)},
						KeySpec{ID: fmt.Sprintf("k%d", n), Team: "t"})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if m.Secret != "" {
						secrets++
					}
					numbers[m.Revision.Number]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if secrets != each || len(numbers) != each {
			t.Errorf("%d secrets and %d revisions, want %d", secrets, len(numbers), each)
		}
		for _, h := range hubs {
			eventually(t, func() bool { return h.Head().Number == each+1 && h.Snapshot().Keys() == each })
		}
	})
}

// TestFollowed: what one hub commits, another that waits is told.
func TestFollowed(t *testing.T) {
	thePostgres.OnBoth(t, func(t *testing.T, database string) {
		a, b := opened(t, Config{Database: database}), opened(t, Config{Database: database})
		changed := b.Changed()
		must(t, a, put(KindSpoke, "a", "{}"))
		select {
		case <-changed:
		case <-time.After(2 * time.Minute):
			t.Fatal("the other hub is never told")
		}
		if b.Head().Number != 1 || b.Cut("a") == nil || b.Cut("b") != nil {
			t.Errorf("the other hub is at %d", b.Head().Number)
		}
	})
}
